"""``--history``: the results of the runs of a folder over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from harness.settings import Given, Group, flag
from runner.cli.formats import formats_asked
from runner.plan.compilers import COMPILERS
from runner.plan.config import SUITES, RunConfig
from runner.plan.settings import listed, read_row, row_at
from runner.runs.history.asked import Asked, since

HISTORY = flag(
    "--history",
    group=Group.ACTIONS,
    nargs="?",
    const="logs",
    metavar="DIR",
    help="list the runs in DIR/history.sqlite, and draw pass rate, speedup, compile time and memory over "
    "time as DIR/history.png (default: logs); --suites, --compilers, --tag and --since select runs",
)
REBUILD = flag(
    "--rebuild", group=Group.ACTIONS, help="with --history: build the index again from the run folders"
)
SINCE = flag(
    "--since",
    group=Group.ACTIONS,
    metavar="WHEN",
    help="with --history: runs since a date such as 2026-11-01, or of the last 12h, 7d, 4w",
)
CALLED_BY = (HISTORY,)
Request = tuple[Asked, "frozenset[str] | None"]


def add_flags(add: Callable[..., None]) -> None:
    add(HISTORY, REBUILD, SINCE)


def parse(given: Given) -> Request:
    """``UsageError`` for a bad time. Unknown suites and compilers are allowed, because runs may be old."""
    asked = Asked(
        folder=Path(given[HISTORY.key]),
        suites=listed(SUITES.long, given.get(SUITES.key, ())),
        compilers=listed(COMPILERS[0].long, given.get(COMPILERS[0].key, ())),
        tags=read_row(row_at(RunConfig, "tags"), given, ()),
        since=since(given[SINCE.key], datetime.now(timezone.utc)) if SINCE.key in given else None,
        rebuild=REBUILD.key in given,
    )
    return asked, formats_asked(given)


def perform(request: Request, argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.runs.history.command import show_history

    asked, formats = request
    return show_history(asked, formats, Console())
