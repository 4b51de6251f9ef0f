"""How much a speedup varies between processes, beside what one process's interval promises.

    python benchmarks/processes.py                        # measures 10 models in 8 processes each
    python benchmarks/processes.py --run logs/SOME-RUN    # only reads a run made with --processes

For every model and candidate: the standard deviation between processes, the one that rounds within
them explain, and how many one-process intervals hold the mean of all. "needed" are the processes
that bring the interval over processes to +-2 %.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from scipy import stats
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.schema import Record, Samples  # noqa: E402 - the project need not be installed
from runner.record_file import read_records  # noqa: E402
from runner.statistics import PairedEstimate, paired_speedup, speedup_by_process  # noqa: E402

MODELS = {
    "tiny_gpt": ("MLP_addition", "NanoGPT_addition", "TLTransformer_addition", "NanoGPT_shakespeare_64"),
    "timm_models": ("lcnet_050", "regnety_002", "ghostnet_100"),
    "huggingface": ("DistilBertForMaskedLM", "T5Small", "MobileBertForMaskedLM"),
}
NARROW = math.log1p(0.02)
MOST_NEEDED = 100


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, nargs="+", help="folders of runs made with --processes")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--compilers", default="eager,inductor")
    parser.add_argument("--mode", choices=("training", "inference"), default="inference")
    parser.add_argument("--keep", type=Path, help="keep the run's folder here (default: a temporary folder)")
    options = parser.parse_args()
    if options.run:
        print_table([r for run in options.run for r in read_records(run / "records.jsonl").records])
        return
    with tempfile.TemporaryDirectory(prefix="torchduet-processes-") as temporary:
        folder = options.keep or Path(temporary) / "run"
        names = [f"--only={name}" for models in MODELS.values() for name in models]
        command = [
            *(sys.executable, str(ROOT / "runner.py"), "--suites=" + ",".join(MODELS), f"--{options.mode}"),
            *("--devices=cpu", "--performance", "--threads=1", f"--compilers={options.compilers}", *names),
            *(f"--processes={options.processes}", f"-n{options.rounds}", f"--output-dir={folder}"),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        print_table(read_records(folder / "records.jsonl").records)


def print_table(records: Sequence[Record]) -> None:
    rows = [row(record, record.samples) for record in records if record.samples is not None]
    headers = (
        *("model", "candidate", "step ms", "speedup [95 %, over processes]", "one process +-%"),
        *("sd between %", "sd explained %", "ratio", "one-process intervals that hold it", "needed"),
    )
    print(tabulate(rows, headers=headers, floatfmt=".2f"))
    held, tried = (sum(int(row[8].split("/")[part]) for row in rows) for part in (0, 1))
    print(f"one-process intervals that hold the mean over processes: {held} of {tried}")


def row(
    record: Record, samples: Samples
) -> tuple[str, str, float, str, float, float, float, float, str, str]:
    over = speedup_by_process(samples.baseline_s, samples.candidate_s, samples.rounds_by_process)
    alone = list(by_process(samples))
    widths = [one.half_width for one in alone if one.half_width is not None]
    explained = statistics.fmean(widths) / stats.norm.ppf(0.975)
    between = over.between_sd or 0.0
    held = sum(bool(o.ci_low and o.ci_high and o.ci_low <= over.speedup <= o.ci_high) for o in alone)
    return (
        record.job.case.name,
        record.candidate,
        over.candidate_median_s * 1e3,
        f"{over.speedup:.3f} [{over.ci_low:.3f}, {over.ci_high:.3f}]",
        100 * statistics.fmean(widths),
        100 * between,
        100 * explained,
        between / explained,
        f"{held}/{len(alone)}",
        needed(between),
    )


def by_process(samples: Samples) -> Iterator[PairedEstimate]:
    ends = itertools.accumulate(samples.rounds_by_process)
    for rounds, end in zip(samples.rounds_by_process, ends, strict=True):
        part = slice(end - rounds, end)
        yield paired_speedup(samples.baseline_s[part], samples.candidate_s[part])


def needed(between: float) -> str:
    for processes in range(2, MOST_NEEDED):
        if stats.t.ppf(0.975, processes - 1) * between / math.sqrt(processes) <= NARROW:
            return str(processes)
    return f"over {MOST_NEEDED}"


if __name__ == "__main__":
    main()
