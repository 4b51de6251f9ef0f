"""The A/A control, repeated: eager against eager through the whole program, in fresh processes.

    python results/aa-control/how.py --repetitions 20 --only MLP_addition --only GPT_150k

Prints for each model how often the control was called faster or slower (it should be at most 1 in 20), the
standard deviation of the reported speedup, and the distribution of p. For comparison it prints the standard
deviation of the ratio of medians of the same rounds and of sequential timing (eager of one run against the
control of the next, as if one had been timed after the other).

Kept beside the results that it made. No check covers it: it may need the program of its day (2026-11-23).
"""

from __future__ import annotations

import argparse
import collections
import itertools
import math
import statistics
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Iterator
from contextlib import contextmanager
from pathlib import Path

from scipy import stats
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from runner.store.record_file import read_records  # noqa: E402
from benchmarks.common import new_parser  # noqa: E402 - nothing is installed
from harness.schema import Record  # noqa: E402
from runner.analysis.comparison import Comparison  # noqa: E402
from runner.analysis.derive import compare  # noqa: E402
from runner.analysis.estimate import Verdict  # noqa: E402


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--suite", default="tiny_gpt")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--mode", choices=("training", "inference"), default="training")
    parser.add_argument("--batch-size", type=int, help="default: the model's own")
    parser.add_argument("--only", action="append", default=None)
    parser.add_argument("--keep", type=Path, help="keep the run folders here (default: a temporary folder)")
    options = parser.parse_args()
    with folder_for(options.keep, "aa") as parent:
        found = [run(options, parent / f"run-{seed}", seed) for seed in range(options.repetitions)]
    print_table([comparison for comparisons in found for comparison in comparisons])


def run(options: argparse.Namespace, folder: Path, seed: int) -> tuple[Comparison, ...]:
    """One whole run with its own seed, so that order, weights and process all differ."""
    records = run_program(
        folder,
        *(f"--suites={options.suite}", f"--{options.mode}", f"--dtypes={options.dtype}", f"--seed={seed}"),
        *("--compilers=eager", "--performance", "--processes=1", f"--repeat={options.rounds}"),
        *([f"--batch-size={options.batch_size}"] if options.batch_size else []),
        *(f"--only={name}" for name in options.only or ("MLP_addition", "GPT_150k")),
    )
    print(f"run {seed + 1} of {options.repetitions} done", file=sys.stderr)
    return compare(records)


def print_table(comparisons: list[Comparison]) -> None:
    by_model = collections.defaultdict(list)
    for comparison in comparisons:
        by_model[comparison.record.job.case.name].append(comparison)
    rows = [row(name, group) for name, group in by_model.items()]
    if len(rows) > 1:
        rows.append(row("all", comparisons))
    headers = (
        *("model", "runs", "median step ms", "called faster/slower", "interval holds 1"),
        *("sd paired %", "sd medians %", "paired/medians", "sd sequential %", "paired/sequential"),
        *("share p<0.05", "KS p of uniform p"),
    )
    print(tabulate(rows, headers=headers, floatfmt=".3g"))


def row(name: str, group: list[Comparison]) -> tuple[object, ...]:
    paired = [math.log(c.speedup) for c in group if c.speedup]
    medians = [math.log(c.estimate.speedup_of_medians) for c in group if c.estimate]
    called = sum(c.verdict in (Verdict.FASTER, Verdict.SLOWER) for c in group)
    covered = sum(
        c.ci_low is not None and c.ci_high is not None and c.ci_low <= 1 <= c.ci_high for c in group
    )
    p_values = [c.p_value for c in group if c.p_value is not None]
    spread_paired, spread_medians = statistics.stdev(paired), statistics.stdev(medians)
    spread_sequential = statistics.stdev(sequential(group))
    return (
        name,
        len(group),
        statistics.median(c.baseline_ms for c in group if c.baseline_ms),
        f"{called}/{len(group)}",
        f"{covered}/{len(group)}",
        100 * spread_paired,
        100 * spread_medians,
        spread_paired / spread_medians,
        100 * spread_sequential,
        spread_paired / spread_sequential,
        sum(p < 0.05 for p in p_values) / len(p_values),
        stats.kstest(p_values, "uniform").pvalue,
    )


def sequential(group: list[Comparison]) -> list[float]:
    """Logarithms of median eager time / median control time, the two from runs that followed each other."""
    by_model = collections.defaultdict(list)
    for comparison in group:
        by_model[comparison.record.job.case.name].append(comparison)
    return [
        math.log(earlier.baseline_ms / later.candidate_ms)
        for runs in by_model.values()
        for earlier, later in itertools.pairwise(runs)
        if earlier.baseline_ms and later.candidate_ms
    ]


@contextmanager
def folder_for(keep: Path | None, name: str) -> Iterator[Path]:
    """The folder to keep, or a temporary folder."""
    with tempfile.TemporaryDirectory(prefix=f"torchduet-{name}-") as temporary:
        yield keep or Path(temporary)


def run_program(folder: Path, *flags: str, variables: Mapping[str, str] | None = None) -> tuple[Record, ...]:
    """The records of a run of ``runner.py`` into this folder. ``SystemExit`` if the run failed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "runner.py"), *flags, f"--output-dir={folder}"],
        check=False,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **(variables or {})},
    )
    if done.returncode not in (0, 1):  # 1: a candidate failed, and its record has the reason
        raise SystemExit(f"{' '.join(flags)} ended with {done.returncode}")
    return read_records(folder / "records.jsonl").records


if __name__ == "__main__":
    main()
