"""``--index``: an HTML page that lists the runs of a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from harness.settings import Given, Group, flag
from runner.cli.exit_codes import OK
from runner.cli.formats import formats_asked

FLAG = flag(
    "--index",
    group=Group.ACTIONS,
    nargs="?",
    const="logs",
    metavar="DIR",
    help="write DIR/index.html: a list of the runs of DIR with links, and trends (default: logs)",
)
CALLED_BY = (FLAG,)


def add_flags(add: Callable[..., None]) -> None:
    add(FLAG)


def parse(given: Given) -> Path:
    formats_asked(given)
    return Path(given[FLAG.key])


def perform(folder: Path, argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.runs.history.page import write_page

    Console().print(write_page(folder), markup=False, highlight=False, soft_wrap=True)
    return OK
