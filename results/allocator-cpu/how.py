"""Does a choice of ours change speedups? The same plan measured both ways, in alternation model by model.

    python results/allocator-cpu/how.py sharing       # candidates share a process, or each has its own (--isolate)
    python results/allocator-cpu/how.py allocator     # malloc with settings that keep the heap, or as it comes

Both ways in several fresh processes a job: each difference has an interval that holds the variation between
processes (Welch). Without an effect, about 1 in 20 intervals leaves out 1. The second table has eager's own
step and page faults: medians over all rounds.

Kept beside the results that it made. No check covers it: it may need the program of its day (2026-11-23).
"""

from __future__ import annotations

import argparse
import math
import statistics
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy import stats
from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from runner.store.record_file import read_records  # noqa: E402
from benchmarks.common import new_parser  # noqa: E402 - as a script
from harness.schema import Record  # noqa: E402
sys.path.insert(0, str(ROOT / "results" / "processes-cpu"))
from how import MODELS, SUITES, processes_of  # noqa: E402
from runner.analysis.statistics import paired_speedup  # noqa: E402

Row = tuple[str, str, float, float, str, float, float, float]
"""model, candidate, speedup both ways, their ratio with its interval, sd of the log both ways, p"""

QUESTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "sharing": {"shared": (), "isolated": ("--isolate",)},
    "allocator": {"heap kept": ("--allocator=default",), "system": ("--allocator=system",)},
}


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("question", choices=tuple(QUESTIONS))
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--compilers", default="aot_eager,inductor")
    parser.add_argument("--mode", choices=("training", "inference"), default="inference")
    parser.add_argument("--only", action="append", choices=tuple(MODELS), help="these models only")
    parser.add_argument("--keep", type=Path, help="keep the runs here, or read those that are there")
    options = parser.parse_args()
    ways = QUESTIONS[options.question]
    rows: list[Row] = []
    eager: list[tuple[object, ...]] = []
    with folder_for(options.keep, options.question) as parent:
        for model in options.only or MODELS:
            folders = {way: parent / f"{model}-{options.mode}-{way.replace(' ', '-')}" for way in ways}
            words = (f"--suites={SUITES}", f"--only={model}", f"--batch-size={MODELS[model]}")
            for way, folder in folders.items():
                if not (folder / "records.jsonl").exists():
                    run_program(folder, *words, *conditions(options), *ways[way], "--format=txt")
            rows += compared(model, folders)
            eager += eager_steps(model, folders)
    one, other = ways
    headers = ("model", "candidate", one, other, f"{other} / {one} [95 %]", f"sd, {one}", f"sd, {other}", "p")
    print(tabulate(rows, headers=headers, floatfmt=".3f"))
    away = sum(float(row[-1]) < 0.05 for row in rows)
    expected = f"{0.05 * len(rows):.1f} expected by chance"
    print(f"{away} of {len(rows)} intervals leave out 1 ({expected})")
    for candidate in dict.fromkeys(row[1] for row in rows):
        logs = [math.log(row[3] / row[2]) for row in rows if row[1] == candidate]
        interval = stats.ttest_1samp(logs, 0).confidence_interval()
        ends = f"[{math.exp(interval.low):.3f}, {math.exp(interval.high):.3f}]"
        print(f"{candidate}, over models: {math.exp(statistics.fmean(logs)):.3f} {ends}")
    differences = [abs(math.log(row[3] / row[2])) for row in rows]
    print(f"median difference {100 * statistics.median(differences):.2f} %")
    for way, spreads in ((one, [row[5] for row in rows]), (other, [row[6] for row in rows])):
        pooled = math.sqrt(statistics.fmean(spread**2 for spread in spreads))
        print(f"sd of the log speedup between processes, {way}: {100 * pooled:.1f} % (pooled over the rows)")
    print()
    columns = ("model", "way", "eager ms", "candidate", "page faults, eager", "page faults, candidate")
    print(tabulate(eager, headers=columns, floatfmt=(*("",) * 2, ".3f", "", ".0f", ".0f")))


def conditions(options: argparse.Namespace) -> tuple[str, ...]:
    return (
        *(f"--{options.mode}", "--devices=cpu", "--performance", "--threads=1"),
        *(f"--compilers={options.compilers}", f"--processes={options.processes}", f"-n{options.rounds}"),
    )


def compared(model: str, folders: Mapping[str, Path]) -> list[Row]:
    logs: dict[str, list[list[float]]] = {}
    for folder in folders.values():
        for (_, _, candidate), parts in processes_of(read_records(folder / "records.jsonl").records).items():
            logs.setdefault(candidate, []).append([log_speedup(part) for part in parts])
    return [
        (model, candidate, *difference(*found))
        for candidate, found in logs.items()
        if len(found) == len(folders)
    ]


def eager_steps(model: str, folders: Mapping[str, Path]) -> list[tuple[object, ...]]:
    """Of each way and candidate, the medians over rounds: eager's ms, and page faults of a step."""
    rows: list[tuple[object, ...]] = []
    for way, folder in folders.items():
        for record in read_records(folder / "records.jsonl").records:
            samples = record.samples
            if samples is not None:
                figures = (
                    *(1000 * statistics.median(samples.baseline_s), record.candidate),
                    statistics.median(samples.baseline_minor_faults),
                    statistics.median(samples.candidate_minor_faults),
                )
                rows.append((model, way, *figures))
    return rows


def log_speedup(logs: np.ndarray) -> float:
    """Of one process, from the log ratio of each of its rounds."""
    return math.log(paired_speedup(np.exp(logs), np.ones(logs.size)).speedup)


def difference(
    first: Sequence[float], second: Sequence[float]
) -> tuple[float, float, str, float, float, float]:
    """(speedup the first way, the second way, second / first with its interval, both sd of the log, p)"""
    found = stats.ttest_ind(second, first, equal_var=False)
    interval = found.confidence_interval(0.95)
    means = statistics.fmean(first), statistics.fmean(second)
    text = (
        f"{math.exp(means[1] - means[0]):.3f} [{math.exp(interval.low):.3f}, {math.exp(interval.high):.3f}]"
    )
    spreads = statistics.stdev(first), statistics.stdev(second)
    return math.exp(means[0]), math.exp(means[1]), text, *spreads, float(found.pvalue)


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
