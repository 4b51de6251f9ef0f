"""``--history``: lists the runs, draws their picture, or makes the index again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.errors import UsageError
from runner.history.asked import Asked

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = ("console", "png", "svg")
SHOWN_CHANGES = 20


def show_history(asked: Asked, formats: frozenset[str] | None, console: Console) -> int:
    """The list on the console, the picture in the folder."""
    from runner.history.index import INDEX, read_entries
    from runner.history.listing import matching, print_runs
    from runner.history.plot import MOST_SECTIONS, render
    from runner.history.trends import latest_changes, sections

    wanted = _formats(formats)
    if asked.rebuild:
        from runner.history.enter import rebuild

        _say(console, rebuild(asked.folder))
    every = read_entries(asked.folder / INDEX)
    if not every:
        raise UsageError(f"--history: {asked.folder / INDEX} has no run yet; measure something first")
    entries = matching(every, asked)
    if not entries:
        raise UsageError(f"--history: none of the {len(every)} runs in {asked.folder} fits these filters")
    found = sections(entries)
    if "console" in wanted:
        print_runs(entries, asked, console)
        changed = list(latest_changes(found))
        if changed:
            console.print("\nChanged beyond noise in the newest run:", style="bold")
        for sentence in changed[:SHOWN_CHANGES]:
            _say(console, f"    {sentence}")
    if len(found) > MOST_SECTIONS:
        _say(
            console,
            f"Drawn are the {MOST_SECTIONS} sections measured last, of {len(found)}; filter for others.",
        )
    if not found:
        _say(console, "Nothing to draw yet: nothing was measured twice on one machine.")
    elif wanted & {"png", "svg"}:
        _write(asked, {n: c for n, c in render(found).items() if n.rsplit(".", 1)[-1] in wanted}, console)
    return 0


def _formats(given: frozenset[str] | None) -> frozenset[str]:
    for word in sorted(given or ()):
        if word not in FORMATS:
            raise UsageError(f"--format: the history has no {word}; choose from {', '.join(FORMATS)}")
    return frozenset(FORMATS) if given is None else given


def _write(asked: Asked, files: dict[str, bytes], console: Console) -> None:
    from runner.run_folder import write_whole

    for name, content in files.items():
        try:
            write_whole(asked.folder / name, content)
        except OSError as error:
            raise UsageError(
                f"--history: {asked.folder / name} cannot be written ({error.strerror})"
            ) from None
        _say(console, str(asked.folder / name))


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
