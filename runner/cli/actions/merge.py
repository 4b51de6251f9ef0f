"""``--merge``: joins several runs into one, in a new folder."""

from __future__ import annotations

from collections.abc import Sequence
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
FLAGS = (FLAG,)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    folders: tuple[Path, ...]
    output_dir: Path | None
    formats: frozenset[str] | None  # None: all


def parse(given: Given) -> MergeRequest:
    return MergeRequest(
        folders=tuple(map(Path, given[FLAG.key])),
        output_dir=read_row(row_at(RunConfig, "output_dir"), given, None),
        formats=formats_asked(given),
    )


def perform(request: MergeRequest, argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.cli.measuring import report
    from runner.store.merge import merge

    console = Console()
    merged = merge(request.folders, request.output_dir, argv)
    for sentence in merged.damage:
        tell(f"{'error' if merged.missing else 'note'}: {sentence}")
    code = report(merged.folder, console, request.formats)
    if merged.missing:
        console.print(merged.missing, markup=False, highlight=False, soft_wrap=True)
    return BAD_INPUT if merged.missing and merged.damage else code
