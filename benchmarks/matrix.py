"""The matrix that other harnesses are timed on: 4 models x 2 modes x 2 compilers, parity and 30 rounds each.

    python benchmarks/matrix.py                 # ours: one run, one worker a model and mode
    python benchmarks/matrix.py --separately    # and as one process for each of the 32 numbers

lcnet_050 and regnety_002 at batch 4, DistilBertForMaskedLM and ElectraForCausalLM at batch 1; float32, full
scale. Both ways run this program, so their ratio holds on any machine. Prints where the time went and
the efficiency (see benchmarks/efficiency.py). Each way begins with empty compile caches of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.efficiency import print_table, row, spent_by_job, total  # noqa: E402 - nothing is installed
from runner.record_file import read_records  # noqa: E402

MODELS = {
    "timm_models": {"lcnet_050": 4, "regnety_002": 4},
    "huggingface": {"DistilBertForMaskedLM": 1, "ElectraForCausalLM": 1},
}
MODES = ("inference", "training")
COMPILERS = ("aot_eager", "inductor")
TESTS = ("accuracy", "performance")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--separately", action="store_true", help="also as one process for each number")
    parser.add_argument("--keep", type=Path, help="keep the run folders here (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torchduet-matrix-") as temporary:
        parent = options.keep or Path(temporary)
        parent.mkdir(parents=True, exist_ok=True)
        ours = together(parent, options.rounds)
        if options.separately:
            other = separately(parent, options.rounds)
            print(f"one process a number: {other:.0f} s; ours takes {ours / other:.2f} of it")


def together(parent: Path, rounds: int) -> float:
    """Seconds of wall time, all programs included."""
    folder = parent / "matrix"
    caches = empty_caches(parent / "caches")
    start = time.perf_counter()
    run(caches, "--suites=" + ",".join(MODELS), *(f"--{mode}" for mode in MODES), f"-n{rounds}",
        "--compilers=" + ",".join(COMPILERS), f"--output-dir={folder}", batches(parent),
        *only(*MODELS))  # fmt: skip
    wall_s = time.perf_counter() - start
    records = read_records(folder / "records.jsonl").records
    print_table(records)
    whole = total("with the program's own start and report", spent_by_job(records), wall_s)
    print(tabulate([row(whole)], tablefmt="plain", floatfmt=".2f"))
    passed = sum(record.status.passed for record in records)
    print(f"{wall_s:.0f} s in all, efficiency {whole.efficiency:.2f}, {passed} of {len(records)} passed")
    return wall_s


def separately(parent: Path, rounds: int) -> float:
    """The same numbers, each in a process of its own that builds, compiles and times for itself alone."""
    caches = empty_caches(parent / "separate-caches")
    start = time.perf_counter()
    for suite, models in MODELS.items():
        for model in models:
            for mode in MODES:
                for compiler in COMPILERS:
                    for test in TESTS:
                        folder = parent / f"{model}-{mode}-{compiler}-{test}"
                        run(caches, f"--suites={suite}", f"--only={model}", f"--{mode}", f"--{test}",
                            f"-n{rounds}", f"--compilers={compiler}", "--no-fork-server",
                            f"--output-dir={folder}", batches(parent))  # fmt: skip
    return time.perf_counter() - start


def run(caches: dict[str, str], *flags: str) -> None:
    command = [sys.executable, str(ROOT / "runner.py"), "--devices=cpu", "--dtypes=float32", "--scale=full"]
    done = subprocess.run(
        [*command, "--format=txt", *flags],
        check=False,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **caches},
    )
    if done.returncode not in (0, 1):  # 1: some candidate failed, and its record says so
        raise SystemExit(f"{' '.join(flags)} ended with {done.returncode}")


def only(*suites: str) -> list[str]:
    return [f"--only={model}" for suite in suites for model in MODELS[suite]]


def batches(parent: Path) -> str:
    """A file with each model's batch size, as the flag that names it."""
    file = parent / "batches.txt"
    sizes = {model: size for models in MODELS.values() for model, size in models.items()}
    file.write_text("".join(f"{model},{size}\n" for model, size in sizes.items()), encoding="utf-8")
    return f"--batch-size-file={file}"


def empty_caches(folder: Path) -> dict[str, str]:
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


if __name__ == "__main__":
    main()
