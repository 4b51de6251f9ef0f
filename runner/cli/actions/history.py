"""``--history``: the runs of a folder, on the terminal and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.settings import Given, Group, flag
from runner.cli.exit_codes import OK
from runner.cli.formats import OTAVA, formats_asked
from runner.errors import UsageError
from runner.plan.compilers import COMPILERS
from runner.plan.config import SUITES, RunConfig
from runner.plan.settings import listed, read_row, row_at

if TYPE_CHECKING:
    from runner.runs.history import Filter

HISTORY = flag(
    "--history=DIR",
    group=Group.ACTIONS,
    nargs="?",
    const="logs",
    help="list the runs of DIR (default: logs) and write DIR/index.html: docs/COMPARE.md",
)
FLAGS = (HISTORY,)


def parse(given: Given) -> tuple[Path, Filter, bool]:
    """Unknown suites and compilers are allowed, because runs may be old. The last: whether Otava reads it."""
    from runner.runs.history import Filter

    asked = Filter(
        suites=listed(SUITES.long, given.get(SUITES.key, ())),
        compilers=listed(COMPILERS[0].long, given.get(COMPILERS[0].key, ())),
        tags=read_row(row_at(RunConfig, "tags"), given, ()),
    )
    formats = formats_asked(given, (OTAVA,)) or frozenset()
    for word in sorted(formats - {OTAVA}):
        raise UsageError(f"--format: a history has no {word}; leave it out, or write {OTAVA}")
    return Path(given[HISTORY.key]), asked, bool(formats)


def perform(request: tuple[Path, Filter, bool], argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.runs.history import show_history

    folder, asked, otava = request
    show_history(folder, asked, Console(), otava=otava)
    return OK
