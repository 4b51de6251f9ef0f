"""``--visualize-logs``: writes tables, files and plots of a finished run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.settings import Given, Group, flag
from runner.cli.formats import formats_asked

FLAG = flag(
    "--visualize-logs",
    group=Group.ACTIONS,
    metavar="DIR",
    help="build tables, files and plots of a run again from its records",
)
FLAGS = (FLAG,)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisualizeRequest:
    folder: Path
    formats: frozenset[str] | None  # None: all


def parse(given: Given) -> VisualizeRequest:
    return VisualizeRequest(folder=Path(given[FLAG.key]), formats=formats_asked(given))


def perform(request: VisualizeRequest, argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.cli.measuring import report
    from runner.store.run_folder import RunFolder

    return report(RunFolder.reopen(FLAG.long, request.folder), Console(), request.formats)
