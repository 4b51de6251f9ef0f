"""Counts compilations during the timed rounds, by variant. There should be none."""

from __future__ import annotations

from harness.counters import frames_given_up, graphs_compiled, latest_recompilation


class Recompilations:
    """Graphs compiled, by variant. Frames that Dynamo gave up on count in every later batch of rounds."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}  # torch's latest reason, by variant
        self._compiled: dict[str, int] = {}
        self._given_up: dict[str, int] = {}
        self._running = ""
        self._seen = (0, 0)

    def start(self) -> None:
        """Resets the counts, except the counts of frames that Dynamo gave up on."""
        self.runs("")
        self._compiled.clear()

    def runs(self, variant: str) -> None:
        """``variant`` runs next ("": none). Compilations since the last call belong to the previous one."""
        now = graphs_compiled(), frames_given_up()
        for found, count, before in zip((self._compiled, self._given_up), now, self._seen, strict=True):
            if self._running and count != before:
                found[self._running] = found.get(self._running, 0) + count - before
                self.reasons[self._running] = latest_recompilation()
        self._running, self._seen = variant, now

    def found(self) -> dict[str, int]:
        """Variant -> number of graphs; {} if nothing was compiled."""
        return {**self._given_up, **self._compiled}
