"""The flags of ``--compare`` and ``--update-expected``, and what is asked by them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Two runs (or files) to compare, or an expected file to update from a run.

    ``fail_on``: the words of ``--fail-on``. ``output_dir``: where files go; None: nowhere.
    """

    first: Path
    second: Path
    fail_on: tuple[str, ...] = ()
    output_dir: Path | None = None


def add_compare(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--compare",
        nargs=2,
        metavar=("A", "B"),
        help="what changed from run A to run B (folders, records.jsonl, the field's CSV files, or as A an "
        "expected CSV): speedups with intervals, failures, graph breaks, compile time, memory; --format=md "
        "or json, --output-dir for files",
    )
    group.add_argument(
        "--fail-on",
        action="append",
        metavar="WHAT",
        help="of --compare, exit code 1 on: regression[:5%%] of a speedup, time[:5%%] (compiled steps), "
        "parity (passed before, fails now), graph-breaks (more), difference (any other status or break; the "
        "default beside an expected CSV); repeated or comma-separated",
    )
    group.add_argument(
        "--update-expected",
        nargs=2,
        metavar=("CSV", "RUN"),
        help="write the run's statuses and graph breaks into the expected CSV, for --compare CSV RUN",
    )


def compare_asked(options: argparse.Namespace, fail_on: tuple[str, ...]) -> Asked:
    first, second = options.compare
    output_dir = Path(options.output_dir) if options.output_dir else None
    return Asked(first=Path(first), second=Path(second), fail_on=fail_on, output_dir=output_dir)


def update_asked(options: argparse.Namespace) -> Asked:
    first, second = options.update_expected
    return Asked(first=Path(first), second=Path(second))


def refuse_lone_gates(options: argparse.Namespace) -> None:
    if options.fail_on and not options.compare:
        raise UsageError("--fail-on is for --compare A B; leave it out, or add --compare")
