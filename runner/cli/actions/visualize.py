"""``--visualize-logs``: writes tables, files and plots of a finished run again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.settings import Given, Group, flag
from runner.cli.formats import Formats, console_for, formats_asked

FLAG = flag(
    "--visualize-logs=DIR",
    group=Group.ACTIONS,
    help="build tables, files and plots of a run again from its records",
)
FLAGS = (FLAG,)
Request = tuple[Path, Formats]  # the folder of the run, and the formats


def parse(given: Given) -> Request:
    return Path(given[FLAG.key]), formats_asked(given)


def perform(request: Request, argv: Sequence[str]) -> int:
    from runner.cli.measuring import report
    from runner.store.run_folder import RunFolder

    folder, formats = request
    return report(RunFolder.reopen(FLAG.long, folder), console_for(formats), formats)
