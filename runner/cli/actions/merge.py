"""``--merge``: joins several runs into one, in a new folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.settings import Given, Group, flag
from runner.cli.formats import formats_asked
from runner.plan.config import RunConfig
from runner.plan.settings import read_row, row_at

FLAG = flag(
    "--merge",
    group=Group.ACTIONS,
    nargs="+",
    metavar="DIR",
    help="join several runs, such as the parts of a plan, in a new folder (--output-dir)",
)
CALLED_BY = (FLAG,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    folders: tuple[Path, ...]
    output_dir: Path | None
    formats: frozenset[str] | None  # None: all


def add_flags(add: Callable[..., None]) -> None:
    add(FLAG)


def parse(given: Given) -> Asked:
    return Asked(
        folders=tuple(map(Path, given[FLAG.key])),
        output_dir=read_row(row_at(RunConfig, "output_dir"), given, None),
        formats=formats_asked(given),
    )


def perform(asked: Asked, argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.cli.measuring import report
    from runner.store.merge import merge

    console = Console()
    folder, notes = merge(asked.folders, asked.output_dir, argv)
    code = report(folder, console, asked.formats)
    for note in notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)
    return code
