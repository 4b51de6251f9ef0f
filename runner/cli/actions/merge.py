"""``--merge``: joins several runs into one, in a new folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.settings import Given, Group, flag
from runner.cli.exit_codes import BAD_INPUT
from runner.cli.formats import formats_asked
from runner.cli.streams import tell
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
    merged = merge(asked.folders, asked.output_dir, argv)
    for sentence in merged.damage:
        tell(f"{'error' if merged.missing else 'note'}: {sentence}")
    code = report(merged.folder, console, asked.formats)
    if merged.missing:
        console.print(merged.missing, markup=False, highlight=False, soft_wrap=True)
    return BAD_INPUT if merged.missing and merged.damage else code
