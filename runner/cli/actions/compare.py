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
    help="show what changed from run A to run B: speedups with intervals, failures, graph breaks, compile "
    "time, memory. A and B: run folders or records.jsonl; RUN@ENV: one environment of a run with "
    "--envs. --format=md or json and --output-dir write files",
)
FAIL_ON = flag(
    "--fail-on",
    group=Group.ACTIONS,
    metavar="WHAT",
    listed=True,
    help="with --compare: exit code 1 on regression[:5%%] of a speedup, time[:5%%] of compiled steps, parity "
    "(passed before, fails now), graph-breaks, calls-captured, eager-fallbacks (more breaks, fewer captured "
    "calls, more functions left to eager than before), difference (another status or number of "
    "graph breaks); repeated or comma-separated",
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
