"""Where a finished run's time went: the time that any harness needs, and this program's own cost.

    python results/main-job-cold-cpu/how.py logs/SOME-RUN

Every harness must build the model, compile it and time samples. Efficiency is the share of these in the wall
time, from the start of the run's first record to the end of its last.

Kept beside the results that it made. No check covers it: it may need the program of its day (2026-11-23).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pandas as pd
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from runner.store.record_file import read_records  # noqa: E402
from benchmarks.common import new_parser  # noqa: E402 - nothing is installed
from harness.schema import Record  # noqa: E402

NEEDED = ("build s", "compile s", "timed samples s")


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("run", type=Path, nargs="+", help="folders of finished runs")
    options = parser.parse_args()
    print_table([record for run in options.run for record in read_records(run / "records.jsonl").records])


def print_table(records: Sequence[Record]) -> None:
    jobs = spent_by_job(records)
    print(tabulate(with_efficiency(pd.concat([jobs, total("all", jobs)])), headers="keys", floatfmt=".2f"))


def with_efficiency(jobs: pd.DataFrame) -> pd.DataFrame:
    return jobs.assign(efficiency=jobs[list(NEEDED)].sum(axis=1) / jobs["wall s"])


def spent_by_job(records: Sequence[Record]) -> pd.DataFrame:
    """Seconds of each job, in the order in which they ran. The parts of a row add up to its ``wall s``."""
    jobs = pd.Series(records).groupby([record.job.key for record in records], sort=False)
    return pd.DataFrame({key: spent(list(group)) for key, group in jobs}).T.rename_axis("job")


def spent(records: Sequence[Record]) -> dict[str, float]:
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
        "build s": _number(shared, "spent_build_s"),
        "compile s": compiling,
        "timed samples s": samples,
        "eager, fp64, check s": _number(shared, "spent_eager_s") + _number(shared, "spent_fp64_s") + checking,
        "warm-up s": _number(shared, "spent_warm_up_s") - kept,
        "between samples s": rounds - samples,
        "finish s": _number(shared, "spent_finish_s"),
    }
    return {"wall s": wall_s, **parts, "rest s": wall_s - sum(parts.values())}


def total(name: str, jobs: pd.DataFrame, wall_s: float | None = None) -> pd.DataFrame:
    """All jobs as one row. With the wall time of the whole program, what lies between them is in the rest."""
    row = jobs.sum()
    if wall_s is not None:
        row["rest s"] += wall_s - row["wall s"]
        row["wall s"] = wall_s
    return row.to_frame(name).T.rename_axis("job")


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
