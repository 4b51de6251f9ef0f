"""``--visualize-logs``: writes tables, files and plots of a finished run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
CALLED_BY = (FLAG,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    folder: Path
    formats: frozenset[str] | None  # None: all


def add_flags(add: Callable[..., None]) -> None:
    add(FLAG)


def parse(given: Given) -> Asked:
    return Asked(folder=Path(given[FLAG.key]), formats=formats_asked(given))


def perform(asked: Asked, argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.cli.measuring import report
    from runner.store.run_folder import RunFolder

    return report(RunFolder.reopen(FLAG.long, asked.folder), Console(), asked.formats)
