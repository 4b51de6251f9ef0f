"""Which variant compiled during the timed rounds, where nothing should."""

from __future__ import annotations

from harness.counters import frames_given_up, graphs_compiled
from harness.metrics.explain import latest_recompilation


class Recompilations:
    """Graphs compiled, by variant. A variant on which Dynamo gave up runs eager from then on, which stays."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}  # of each variant the latest, as torch tells it
        self._compiled: dict[str, int] = {}
        self._given_up: dict[str, int] = {}
        self._running = ""
        self._seen = (0, 0)

    def start(self) -> None:
        """Forgets what was compiled so far, but for what was given up."""
        self.runs("")
        self._compiled.clear()

    def runs(self, variant: str) -> None:
        """From now on that variant runs ("": none). What was compiled before is that one's which ran then."""
        now = graphs_compiled(), frames_given_up()
        for found, count, before in zip((self._compiled, self._given_up), now, self._seen, strict=True):
            if self._running and count != before:
                found[self._running] = found.get(self._running, 0) + count - before
                self.reasons[self._running] = latest_recompilation()
        self._running, self._seen = variant, now

    def found(self) -> dict[str, int]:
        """By variant, how many graphs; none, if all is well."""
        return {**self._given_up, **self._compiled}
