"""Where a finished run's time went: the time that any harness needs, and this program's own cost.

    python benchmarks/efficiency.py logs/SOME-RUN

Every harness must build the model, compile it and time samples. Efficiency is the share of these in the wall
time, from the start of the run's first record to the end of its last.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import new_parser, records_of  # noqa: E402 - nothing is installed
from harness.schema import Record  # noqa: E402

PARTS = (
    "build",
    "compile",
    "timed samples",
    "eager, fp64, check",
    "warm-up",
    "between samples",
    "finish",
    "rest",
)
NEEDED = PARTS[:3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Seconds of one job or run, by part; they add up to ``wall_s``."""

    name: str
    wall_s: float
    parts: dict[str, float]

    @property
    def efficiency(self) -> float:
        return sum(self.parts[part] for part in NEEDED) / self.wall_s


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("run", type=Path, nargs="+", help="folders of finished runs")
    options = parser.parse_args()
    print_table([record for run in options.run for record in records_of(run)])


def print_table(records: Sequence[Record]) -> None:
    jobs = spent_by_job(records)
    rows = [row(job) for job in (*jobs, total("all", jobs))]
    headers = ("job", "wall s", *(f"{part} s" for part in PARTS), "efficiency")
    print(tabulate(rows, headers=headers, floatfmt=".2f"))


def row(spent: Spent) -> tuple[object, ...]:
    return (spent.name, spent.wall_s, *(spent.parts[part] for part in PARTS), spent.efficiency)


def spent_by_job(records: Sequence[Record]) -> list[Spent]:
    """One entry a job, in the order in which they ran."""
    jobs = collections.defaultdict(list)
    for record in records:
        jobs[record.job.key].append(record)
    return [spent(key, group) for key, group in jobs.items()]


def spent(key: str, records: Sequence[Record]) -> Spent:
    """A job's time. Its candidates share a worker, whose own numbers are in each of their records."""
    wall_s = (max(map(_ended, records)) - min(map(_started, records))).total_seconds()
    shared = records[0]
    compiling = sum(_number(record, "candidate_spent_compile_s") for record in records)
    checking = sum(_number(record, "candidate_spent_check_s") for record in records)
    kept_rounds = int(_number(shared, "warmup_rounds_kept"))  # timed while warming up
    kept = sum(_timed(record, baseline=record is shared, rounds=kept_rounds) for record in records)
    rounds = _number(shared, "spent_measure_s") + kept
    samples = sum(_timed(record, baseline=record is shared) for record in records)
    parts = {
        "build": _number(shared, "spent_build_s"),
        "compile": compiling,
        "timed samples": samples,
        "eager, fp64, check": _number(shared, "spent_eager_s") + _number(shared, "spent_fp64_s") + checking,
        "warm-up": _number(shared, "spent_warm_up_s") - kept,
        "between samples": rounds - samples,
        "finish": _number(shared, "spent_finish_s"),
    }
    return Spent(name=key, wall_s=wall_s, parts={**parts, "rest": wall_s - sum(parts.values())})


def total(name: str, jobs: Sequence[Spent], wall_s: float | None = None) -> Spent:
    """All jobs together; with the wall time of the whole program, what lies between them is in the rest."""
    parts = {part: sum(job.parts[part] for job in jobs) for part in PARTS}
    of_jobs = sum(job.wall_s for job in jobs)
    wall_s = of_jobs if wall_s is None else wall_s
    return Spent(name=name, wall_s=wall_s, parts={**parts, "rest": parts["rest"] + wall_s - of_jobs})


def _timed(record: Record, *, baseline: bool, rounds: int | None = None) -> float:
    """Seconds inside the timed parts of the first ``rounds`` samples, or all; eager's count once a job."""
    samples = record.samples
    if samples is None:
        return 0.0
    seconds = sum(samples.candidate_s[:rounds]) + (sum(samples.baseline_s[:rounds]) if baseline else 0.0)
    return seconds * samples.iterations_per_sample


def _number(record: Record, name: str) -> float:
    value = record.metrics.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _started(record: Record) -> datetime:
    return datetime.fromisoformat(record.started)


def _ended(record: Record) -> datetime:
    return datetime.fromisoformat(record.ended)


if __name__ == "__main__":
    main()
