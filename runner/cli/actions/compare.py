"""``--compare``: what changed between two runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.settings import Given, Group, flag
from runner.cli.formats import formats_asked
from runner.plan.config import RunConfig
from runner.plan.settings import listed, read_row, row_at
from runner.runs.compare.command import CompareRequest

COMPARE = flag(
    "--compare",
    group=Group.ACTIONS,
    nargs=2,
    metavar=("A", "B"),
    help="show what changed from run A to run B; RUN@ENV: one environment of a run: docs/HOWTO.md",
)
FAIL_ON = flag(
    "--fail-on",
    group=Group.ACTIONS,
    metavar="WHAT",
    listed=True,
    help="with --compare: exit code 1 on regression[:5%%], time[:5%%], parity, graph-breaks, calls-captured, "
    "eager-fallbacks or difference: docs/HOWTO.md",
)
FLAGS = (COMPARE, FAIL_ON)


def parse(given: Given) -> CompareRequest:
    first, second = map(Path, given[COMPARE.key])
    return CompareRequest(
        first=first,
        second=second,
        formats=formats_asked(given),
        fail_on=listed(FAIL_ON.long, given.get(FAIL_ON.key, ())),
        output_dir=read_row(row_at(RunConfig, "output_dir"), given, None),
    )


def perform(request: CompareRequest, argv: Sequence[str]) -> int:
    from rich.console import Console

    from runner.runs.compare.command import compare_runs

    return compare_runs(request, Console())
