"""The runs of an index on a terminal, newest first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.changes.run import Result
from runner.digits import ratio_text
from runner.history.asked import Asked
from runner.history.index import Entry
from runner.history.trends import CONDITIONS
from runner.labels import plain
from runner.reports._sections import compiler_name
from runner.statistics import geometric_mean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

HEADER = ("when (UTC)", "run", "what", "passed", "geometric means", "torch", "machine")
SHOWN_MEANS = 4


def matching(entries: Sequence[Entry], asked: Asked) -> tuple[Entry, ...]:
    """The runs that fit, each with only those results that do."""
    found = []
    for entry in entries:
        if asked.since is not None and entry.created < asked.since:
            continue
        if asked.tags and not set(asked.tags) & set(entry.tags):
            continue
        results = tuple(result for result in entry.results if _fits(result, asked))
        if results:
            found.append(replace(entry, results=results))
    return tuple(found)


def _fits(result: Result, asked: Asked) -> bool:
    suites, compilers = asked.suites, asked.compilers
    return (not suites or result.conditions.get("suite") in suites) and (
        not compilers or result.compiler in compilers
    )


def print_runs(entries: Sequence[Entry], asked: Asked, console: Console) -> None:
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in HEADER:
        grid.add_column(name, overflow="fold", vertical="top", no_wrap=name in ("when (UTC)", "passed"))
    for entry in reversed(entries):
        grid.add_row(*(_text(console, cell) for cell in _row(entry, asked)))
    console.print(grid)


def _row(entry: Entry, asked: Asked) -> tuple[str, ...]:
    counted = [result for result in entry.results if not result.skipped]
    passed = sum(result.passed for result in counted)
    name = f"{entry.name} [{', '.join(entry.tags)}]" if entry.tags else entry.name
    gone = "" if (asked.folder / entry.name).is_dir() else " (folder gone)"
    what = dict.fromkeys(", ".join(filter(None, _conditions(result))) for result in entry.results)
    means = list(_means(entry.results))
    more = [f"and {len(means) - SHOWN_MEANS} more"] if len(means) > SHOWN_MEANS else []
    return (
        entry.created.strftime("%Y-%m-%d %H:%M"),
        f"{name}{gone}",
        "\n".join(what),
        f"{passed / len(counted):.0%}, {passed}/{len(counted)}" if counted else "-",
        "\n".join((*means[:SHOWN_MEANS], *more)),
        entry.facts.get("torch", ""),
        entry.machine,
    )


def _conditions(result: Result) -> Iterator[str]:
    return (result.conditions.get(name, "") for name in CONDITIONS)


def _means(results: Sequence[Result]) -> Iterator[str]:
    """``inductor 1.23x, 12/13``: over what passed, whatever the suite."""
    for compiler in dict.fromkeys(result.compiler for result in results):
        mine = [result for result in results if result.compiler == compiler and not result.skipped]
        speedups = [math.exp(r.speedup.value) for r in mine if r.passed and r.speedup is not None]
        if speedups:
            mean = ratio_text(geometric_mean(speedups)[0])
            yield f"{compiler_name(compiler)} {mean}, {len(speedups)}/{len(mine)}"


def _text(console: Console, text: str) -> Text:
    from rich.text import Text

    lines = "\n".join(plain(line) for line in text.split("\n"))
    return Text(lines.encode(console.encoding, "backslashreplace").decode(console.encoding))
