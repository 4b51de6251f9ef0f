"""``--history``: the runs of a folder, on the terminal and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.settings import Given, Group, flag
from runner.cli.exit_codes import OK
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


def parse(given: Given) -> tuple[Path, Filter]:
    """Unknown suites and compilers are allowed, because runs may be old."""
    from runner.runs.history import Filter

    asked = Filter(
        suites=listed(SUITES.long, given.get(SUITES.key, ())),
        compilers=listed(COMPILERS[0].long, given.get(COMPILERS[0].key, ())),
        tags=read_row(row_at(RunConfig, "tags"), given, ()),
    )
    return Path(given[HISTORY.key]), asked


def perform(request: tuple[Path, Filter], argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.runs.history import show_history

    show_history(*request, Console())
    return OK
