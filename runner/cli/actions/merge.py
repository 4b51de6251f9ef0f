"""``--merge``: joins several runs into one, in a new folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.settings import Given, Group, flag
from runner.cli.exit_codes import BAD_INPUT
from runner.cli.formats import Formats, console_for, formats_asked
from runner.cli.streams import tell
from runner.plan.config import RunConfig
from runner.plan.settings import read_row, row_at

FLAG = flag(
    "--merge=DIR",
    group=Group.ACTIONS,
    nargs="+",
    help="join several runs, such as the parts of a plan, in a new folder (--output-dir)",
)
FLAGS = (FLAG,)

Request = tuple[tuple[Path, ...], Path | None, Formats]
"""The folders, the new folder, and the formats."""


def parse(given: Given) -> Request:
    output_dir = read_row(row_at(RunConfig, "output_dir"), given, None)
    return tuple(map(Path, given[FLAG.key])), output_dir, formats_asked(given)


def perform(request: Request, argv: Sequence[str]) -> int:
    from runner.cli.measuring import report
    from runner.store.merge import merge

    folders, output_dir, formats = request
    merged = merge(folders, output_dir, argv)
    for sentence in merged.damage:
        tell(f"{'error' if merged.lost else 'note'}: {sentence}")
    code = report(merged.folder, console := console_for(formats), formats)
    if merged.missing:
        console.print(merged.missing, markup=False, highlight=False, soft_wrap=True)
    return BAD_INPUT if merged.lost else code
