"""Does a shared session bias speedups? The same plan with candidates sharing a process, and with --isolate.

    python benchmarks/sharing.py

Both ways in several fresh processes a job, alternating model by model: each difference has an interval
that holds the variation between processes (Welch). Expected: about 1 in 20 intervals leaves out 0.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scipy import stats
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.processes import MODELS, by_process  # noqa: E402 - nothing is installed
from harness.schema import Samples  # noqa: E402
from runner.record_file import read_records  # noqa: E402

WAYS: dict[str, tuple[str, ...]] = {"shared": (), "isolated": ("--isolate",)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--compilers", default="aot_eager,inductor")
    parser.add_argument("--mode", choices=("training", "inference"), default="inference")
    parser.add_argument("--keep", type=Path, help="keep the runs here, or read those that are there")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="torchduet-sharing-") as temporary:
        parent = options.keep or Path(temporary)
        for suite, models in MODELS.items():
            for model in models:
                folders = {way: parent / f"{model}-{way}" for way in WAYS}
                for way, folder in folders.items():
                    if not (folder / "records.jsonl").exists():
                        measure(options, suite, model, WAYS[way], folder)
                rows += compared(model, folders)
    headers = ("model", "candidate", "shared", "isolated", "isolated / shared [95 %]", "p")
    print(tabulate(rows, headers=headers, floatfmt=".3f"))
    away = sum(float(row[-1]) < 0.05 for row in rows)
    expected = f"{0.05 * len(rows):.1f} expected by chance"
    print(f"{away} of {len(rows)} intervals leave out 1 ({expected})")
    differences = [abs(math.log(row[3] / row[2])) for row in rows]
    print(f"median difference {100 * statistics.median(differences):.2f} %")


def measure(options: argparse.Namespace, suite: str, model: str, flags: Sequence[str], folder: Path) -> None:
    command = [
        *(
            sys.executable,
            str(ROOT / "runner.py"),
            f"--suites={suite}",
            f"--only={model}",
            f"--{options.mode}",
        ),
        *("--devices=cpu", "--performance", "--threads=1", f"--compilers={options.compilers}", *flags),
        *(
            f"--processes={options.processes}",
            f"-n{options.rounds}",
            f"--output-dir={folder}",
            "--format=txt",
        ),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def compared(model: str, folders: dict[str, Path]) -> list[tuple[str, str, float, float, str, float]]:
    logs: dict[str, dict[str, list[float]]] = {}
    for way, folder in folders.items():
        for record in read_records(folder / "records.jsonl").records:
            if record.samples is not None:
                logs.setdefault(record.candidate, {})[way] = logs_of(record.samples)
    return [
        (model, candidate, *difference(found["shared"], found["isolated"]))
        for candidate, found in logs.items()
        if len(found) == len(WAYS)
    ]


def logs_of(samples: Samples) -> list[float]:
    return [math.log(one.speedup) for one in by_process(samples)]


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
