"""Does a shared session bias speedups? The same plan with candidates sharing a process, and with --isolate.

    python benchmarks/sharing.py

Both ways in several fresh processes a job, alternating model by model: each difference has an interval
that holds the variation between processes (Welch). Expected: about 1 in 20 intervals leaves out 0.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import folder_for, new_parser, records_of, run_program  # noqa: E402 - as a script
from benchmarks.processes import MODELS, SUITES, processes_of  # noqa: E402
from runner.analysis.statistics import paired_speedup  # noqa: E402

WAYS: dict[str, tuple[str, ...]] = {"shared": (), "isolated": ("--isolate",)}


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--compilers", default="aot_eager,inductor")
    parser.add_argument("--mode", choices=("training", "inference"), default="inference")
    parser.add_argument("--keep", type=Path, help="keep the runs here, or read those that are there")
    options = parser.parse_args()
    rows = []
    with folder_for(options.keep, "sharing") as parent:
        for model, batch_size in MODELS.items():
            folders = {way: parent / f"{model}-{way}" for way in WAYS}
            words = (f"--suites={SUITES}", f"--only={model}", f"--batch-size={batch_size}")
            for way, folder in folders.items():
                if not (folder / "records.jsonl").exists():
                    run_program(folder, *words, *conditions(options), *WAYS[way], "--format=txt")
            rows += compared(model, folders)
    headers = ("model", "candidate", "shared", "isolated", "isolated / shared [95 %]", "p")
    print(tabulate(rows, headers=headers, floatfmt=".3f"))
    away = sum(float(row[-1]) < 0.05 for row in rows)
    expected = f"{0.05 * len(rows):.1f} expected by chance"
    print(f"{away} of {len(rows)} intervals leave out 1 ({expected})")
    differences = [abs(math.log(row[3] / row[2])) for row in rows]
    print(f"median difference {100 * statistics.median(differences):.2f} %")


def conditions(options: argparse.Namespace) -> tuple[str, ...]:
    return (
        *(f"--{options.mode}", "--devices=cpu", "--performance", "--threads=1"),
        *(f"--compilers={options.compilers}", f"--processes={options.processes}", f"-n{options.rounds}"),
    )


def compared(model: str, folders: dict[str, Path]) -> list[tuple[str, str, float, float, str, float]]:
    logs: dict[str, dict[str, list[float]]] = {}
    for way, folder in folders.items():
        for (_, _, candidate), parts in processes_of(records_of(folder)).items():
            logs.setdefault(candidate, {})[way] = [log_speedup(part) for part in parts]
    return [
        (model, candidate, *difference(found["shared"], found["isolated"]))
        for candidate, found in logs.items()
        if len(found) == len(WAYS)
    ]


def log_speedup(logs: np.ndarray) -> float:
    """Of one process, from the log ratio of each of its rounds."""
    return math.log(paired_speedup(np.exp(logs), np.ones(logs.size)).speedup)


def difference(shared: Sequence[float], isolated: Sequence[float]) -> tuple[float, float, str, float]:
    """(speedup shared, isolated, their ratio with its interval, p)"""
    found = stats.ttest_ind(isolated, shared, equal_var=False)
    interval = found.confidence_interval(0.95)
    means = statistics.fmean(shared), statistics.fmean(isolated)
    text = (
        f"{math.exp(means[1] - means[0]):.3f} [{math.exp(interval.low):.3f}, {math.exp(interval.high):.3f}]"
    )
    return math.exp(means[0]), math.exp(means[1]), text, float(found.pvalue)


if __name__ == "__main__":
    main()
