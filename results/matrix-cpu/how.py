"""The matrix that other harnesses are timed on: 4 models x 2 modes x 2 compilers, parity and 30 rounds each.

    python results/matrix-cpu/how.py                 # ours: one run, one worker a model and mode
    python results/matrix-cpu/how.py --threads 1 --ahead 2    # and again with --prepare-ahead=2, a core a job
    python results/matrix-cpu/how.py --separately    # and as one process for each of the 32 numbers

lcnet_050 and regnety_002 at batch 4, DistilBertForMaskedLM and ElectraForCausalLM at batch 1; float32, full
scale. All ways run this program, so their ratios hold on any machine. Prints where the time went and
the efficiency (see results/main-job-cold-cpu/how.py). Each way begins with empty compile caches of its own.

Kept beside the results that it made. No check covers it: it may need the program of its day (2026-11-23).
"""

from __future__ import annotations

import math
import runpy
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from runner.store.record_file import read_records  # noqa: E402
from benchmarks.common import new_parser  # noqa: E402 - nothing is installed
from harness.schema import Record  # noqa: E402
from runner.analysis.derive import summarize  # noqa: E402
from runner.plan.interpreter import cache_settings  # noqa: E402

EFFICIENCY = runpy.run_path(str(ROOT / "results" / "main-job-cold-cpu" / "how.py"))
print_table, spent_by_job, total, with_efficiency = (
    EFFICIENCY[name] for name in ("print_table", "spent_by_job", "total", "with_efficiency")
)
MODELS = {
    "timm_models": {"lcnet_050": 4, "regnety_002": 4},
    "huggingface": {"DistilBertForMaskedLM": 1, "ElectraForCausalLM": 1},
}
MODES = ("inference", "training")
COMPILERS = ("aot_eager", "inductor")
TESTS = ("accuracy", "performance")
CONDITIONS = ("--devices=cpu", "--processes=1", "--dtypes=float32", "--scale=full", "--format=txt")


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, help="of each job (default: one for every CPU)")
    parser.add_argument("--ahead", type=int, help="also with so many jobs that prepare side by side")
    parser.add_argument("--separately", action="store_true", help="also as one process for each number")
    parser.add_argument("--keep", type=Path, help="keep the run folders here (default: a temporary folder)")
    options = parser.parse_args()
    with folder_for(options.keep, "matrix") as parent:
        parent.mkdir(parents=True, exist_ok=True)
        ours, records = together(parent, options.rounds, ahead=1, threads=options.threads)
        if options.ahead:
            faster, others = together(parent, options.rounds, ahead=options.ahead, threads=options.threads)
            print(f"--prepare-ahead={options.ahead} takes {faster / ours:.2f} of the time")
            print_agreement(records, others)
        if options.separately:
            other = separately(parent, options.rounds)
            print(f"one process a number: {other:.0f} s; ours takes {ours / other:.2f} of it")


def together(
    parent: Path, rounds: int, ahead: int, threads: int | None = None
) -> tuple[float, tuple[Record, ...]]:
    """Seconds of wall time, all programs included, and the records."""
    name = "matrix" if ahead == 1 else f"matrix-ahead-{ahead}"
    caches = cache_settings(parent / f"{name}-caches")
    start = time.perf_counter()
    records = run_program(
        parent / name,
        f"--prepare-ahead={ahead}",
        *([f"--threads={threads}"] if threads else []),
        *(*CONDITIONS, "--suites=" + ",".join(MODELS), *(f"--{mode}" for mode in MODES), f"-n{rounds}"),
        *("--compilers=" + ",".join(COMPILERS), batches(parent)),
        *(f"--only={model}" for models in MODELS.values() for model in models),
        variables=caches,
    )
    wall_s = time.perf_counter() - start
    print_table(records)
    whole = with_efficiency(total("with the program's own start and report", spent_by_job(records), wall_s))
    print(tabulate(whole, tablefmt="plain", floatfmt=".2f"))
    passed = sum(record.status.passed for record in records)
    share = whole["efficiency"].iloc[0]
    print(f"{wall_s:.0f} s in all, efficiency {share:.2f}, {passed} of {len(records)} passed")
    return wall_s, records


def print_agreement(one: Sequence[Record], other: Sequence[Record]) -> None:
    """Whether the speedups of two runs are equal within their intervals."""
    values = {(c.record.job.key, c.compiler): c for c in summarize(other).comparisons}
    rows = []
    for first in summarize(one).comparisons:
        name = first.record.job.key, first.compiler
        second = values.get(name)
        if second is None or first.estimate is None or second.estimate is None:
            continue
        speedups = first.estimate.speedup, second.estimate.speedup
        halves = (first.estimate.half_width or math.inf, second.estimate.half_width or math.inf)
        rows.append((*name, *speedups, abs(math.log(speedups[0] / speedups[1])) <= math.hypot(*halves)))
    print(tabulate(rows, headers=("job", "candidate", "alone", "ahead", "equal"), floatfmt=".3f"))
    print(f"{sum(row[-1] for row in rows)} of {len(rows)} speedups are equal within their 95 % intervals")


def separately(parent: Path, rounds: int) -> float:
    """The same numbers, each in a process of its own that builds, compiles and times for itself alone."""
    caches = cache_settings(parent / "separate-caches")
    start = time.perf_counter()
    for suite, models in MODELS.items():
        for model in models:
            for mode in MODES:
                for compiler in COMPILERS:
                    for test in TESTS:
                        run_program(
                            parent / f"{model}-{mode}-{compiler}-{test}",
                            *(*CONDITIONS, f"--suites={suite}", f"--only={model}", f"--{mode}", f"--{test}"),
                            *(f"-n{rounds}", f"--compilers={compiler}", "--no-fork-server", batches(parent)),
                            variables=caches,
                        )
    return time.perf_counter() - start


def batches(parent: Path) -> str:
    """A file with each model's batch size, as the flag that names it."""
    file = parent / "batches.txt"
    sizes = {model: size for models in MODELS.values() for model, size in models.items()}
    file.write_text("".join(f"{model},{size}\n" for model, size in sizes.items()), encoding="utf-8")
    return f"--batch-size-file={file}"


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
