"""``--history``: lists the runs, draws their plot, or rebuilds the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.errors import UsageError
from runner.labels import file_part
from runner.runs.history.asked import Asked

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = ("console", "png", "svg")


def show_history(asked: Asked, formats: frozenset[str] | None, console: Console) -> int:
    """Prints the list and writes the plot into the folder."""
    from runner.reports.parts.grid import say
    from runner.runs.history.index import INDEX, read_entries
    from runner.runs.history.listing import matching, print_changes, print_runs
    from runner.runs.history.plot import MOST_TRENDS, render
    from runner.runs.history.trends import trends
    from runner.store.run_folder import write_asked

    wanted = _formats(formats)
    if asked.rebuild:
        from runner.runs.history.enter import rebuild

        say(console, rebuild(asked.folder))
    every = read_entries(asked.folder / INDEX)
    if not every:
        raise UsageError(f"--history: {asked.folder / INDEX} has no run yet; measure something first")
    entries = matching(every, asked)
    if not entries:
        raise UsageError(f"--history: none of the {len(every)} runs in {asked.folder} fits these filters")
    found = trends(entries)
    if "console" in wanted:
        print_runs(entries, asked, console)
        print_changes(found, console)
    if len(found) > MOST_TRENDS:
        say(
            console,
            f"Drawn are the {MOST_TRENDS} sections measured last, of {len(found)}; filter for others.",
        )
    if not found:
        say(console, "No trend can be drawn yet: nothing was measured twice on the same machine.")
    elif wanted & {"png", "svg"}:
        pictures = {n: c for n, c in render(found).items() if n.rsplit(".", 1)[-1] in wanted}
        for name, content in pictures.items():
            path = asked.folder / _of_filters(name, asked)
            write_asked("--history", path, content)
            say(console, str(path))
    return 0


def _of_filters(name: str, asked: Asked) -> str:
    """``history-tiny_gpt+inductor.png``: a filtered plot does not replace the full plot."""
    since = [] if asked.since is None else [asked.since.strftime("since-%Y%m%d")]
    words = [*asked.suites, *asked.compilers, *asked.tags, *since]
    stem, _, ending = name.rpartition(".")
    return f"{stem}-{file_part('+'.join(words))}.{ending}" if words else name


def _formats(given: frozenset[str] | None) -> frozenset[str]:
    for word in sorted(given or ()):
        if word not in FORMATS:
            raise UsageError(f"--format: the history has no {word}; choose from {', '.join(FORMATS)}")
    return frozenset(FORMATS) if given is None else given
