"""How much a speedup varies between processes, beside what one process's interval promises.

    python benchmarks/processes.py --keep logs/processes       # 10 models, 10 processes, 2 modes
    python benchmarks/processes.py --run logs/RUN [MORE ...]   # only reads runs made with --processes

Measuring goes in passes of two processes for each model, so that the processes of a model lie minutes apart.
Every pass is a run in a folder of its own under --keep; a pass that is complete is not measured again, so an
interrupted measurement continues with the same command. Each process is a fresh interpreter with its own
order of rounds and of placement.

For every model and candidate the first table has the standard deviation between processes, the standard
deviation that the rounds within processes explain, and how many one-process intervals contain the mean of
all. The second table has tau, the standard deviation between processes beyond the rounds' own noise, for each
candidate and mode: an analysis of variance with winsorized rounds, and the covariance of the two halves of
each process's rounds as a check (``runner.analysis.verdicts.between``); both intervals are over models.
"""

from __future__ import annotations

import argparse
import itertools
import math
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy import stats
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from harness.schema import Record  # noqa: E402 - the project need not be installed
from runner.analysis.statistics import paired_speedup  # noqa: E402
from runner.analysis.verdicts.between import component, tau_of  # noqa: E402
from runner.store.record_file import read_records  # noqa: E402

MODELS: dict[str, int] = {  # with a batch that makes a step take 1 to 40 ms on one core
    "MLP_addition": 2048,
    "NanoGPT_addition": 128,
    "TLTransformer_addition": 64,
    "NanoGPT_shakespeare_64": 8,
    "GPT_150k": 4,
    "lcnet_050": 4,
    "regnety_002": 2,
    "ghostnet_100": 2,
    "DistilBertForMaskedLM": 1,
    "MobileBertForMaskedLM": 1,
}
SUITES = "tiny_gpt,timm_models,huggingface"
A_PASS = 2  # processes
SEED = 1337
DONE = "complete"

Key = tuple[str, str, str]
"""(model, mode, candidate)"""
Processes = dict[Key, list[np.ndarray]]
"""The log ratios of each process's rounds."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, nargs="+", help="folders of runs made with --processes")
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--compilers", default="eager,aot_eager,inductor")
    parser.add_argument("--modes", default="inference,training")
    parser.add_argument("--only", action="append", choices=tuple(MODELS), help="these models only")
    parser.add_argument("--keep", type=Path, help="the folder of the passes; needed to measure")
    options = parser.parse_args()
    if options.run is None and options.keep is None:
        parser.error("--keep FOLDER is needed to measure, or --run FOLDER to read")
    folders = options.run or list(measured(options))
    print_tables(processes_of([r for one in folders for r in read_records(one / "records.jsonl").records]))


def measured(options: argparse.Namespace) -> Iterator[Path]:
    """The folders of all passes, each measured unless it is complete."""
    options.keep.mkdir(parents=True, exist_ok=True)
    sizes = options.keep / "batch_sizes.csv"
    sizes.write_text("".join(f"{name},{size}\n" for name, size in MODELS.items()))
    for number in range(math.ceil(options.processes / A_PASS)):
        for mode in options.modes.split(","):
            folder = options.keep / f"{mode}-{number}"
            if not (folder / DONE).exists():
                shutil.rmtree(folder, ignore_errors=True)
                measure(options, mode, number, folder, sizes)
                (folder / DONE).touch()
            print(f"pass {number + 1}, {mode}: done", file=sys.stderr, flush=True)
            yield folder


def measure(options: argparse.Namespace, mode: str, number: int, folder: Path, sizes: Path) -> None:
    names = [f"--only={name}" for name in options.only or MODELS]
    command = [
        *(sys.executable, str(ROOT / "runner.py"), f"--suites={SUITES}", f"--{mode}", *names),
        *("--devices=cpu", "--performance", "--threads=1", f"--compilers={options.compilers}"),
        *(f"--batch-size-file={sizes}", f"--processes={A_PASS}", f"-n{options.rounds}"),
        *(f"--seed={SEED + number}", f"--output-dir={folder}"),
    ]
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
    if done.returncode not in (0, 1):  # 1: a candidate failed, and its record says why
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")


def processes_of(records: Sequence[Record]) -> Processes:
    """Of records that share model, mode and candidate, the processes of all."""
    found: Processes = {}
    for record in records:
        samples = record.samples
        if samples is None:
            continue
        logs = np.log(np.array(samples.baseline_s) / np.array(samples.candidate_s))
        ends = list(itertools.accumulate(samples.rounds_by_process or (len(samples),)))
        key = record.job.case.name, record.job.case.mode.value, record.candidate
        found.setdefault(key, []).extend(np.split(logs, ends[:-1]))
    return {key: parts for key, parts in found.items() if len(parts) > 1}


def print_tables(found: Mapping[Key, Sequence[np.ndarray]]) -> None:
    rows = [row(key, parts) for key, parts in found.items()]
    headers = (
        *("model", "mode", "candidate", "processes", "speedup [95 %, over processes]", "one process +-%"),
        *("sd between %", "sd explained %", "tau % (ANOVA)", "one-process intervals that hold it"),
    )
    print(tabulate(rows, headers=headers, floatfmt=".2f"))
    held, tried = (sum(int(str(row[-1]).split("/")[part]) for row in rows) for part in (0, 1))
    print(f"one-process intervals that hold the mean over processes: {held} of {tried}\n")
    print(tabulate(list(taus(found)), headers=TAU_HEADERS))


def row(key: Key, parts: Sequence[np.ndarray]) -> tuple[object, ...]:
    alone = [paired_speedup(np.exp(part), np.ones(part.size)) for part in parts]
    centers = np.log([one.speedup for one in alone])
    center, spread = float(centers.mean()), float(centers.std(ddof=1))
    half = float(stats.t.ppf(0.975, len(parts) - 1)) * spread / math.sqrt(len(parts))
    widths = [one.half_width for one in alone if one.half_width is not None]
    held = sum(bool(o.ci_low and o.ci_high and o.ci_low <= math.exp(center) <= o.ci_high) for o in alone)
    variance = component(parts).variance
    return (
        *key,
        len(parts),
        f"{math.exp(center):.3f} [{math.exp(center - half):.3f}, {math.exp(center + half):.3f}]",
        100 * statistics.fmean(widths),
        100 * spread,
        100 * statistics.fmean(widths) / float(stats.norm.ppf(0.975)),
        math.copysign(100 * math.sqrt(abs(variance)), variance),
        f"{held}/{len(alone)}",
    )


TAU_HEADERS = ("candidate", "mode", "models", "tau % [95 %]", "split-half tau % [95 %]", "sd of two rounds %")


def taus(found: Mapping[Key, Sequence[np.ndarray]]) -> Iterator[tuple[object, ...]]:
    groups: dict[tuple[str, str], list[Sequence[np.ndarray]]] = {}
    for (_, mode, candidate), parts in found.items():
        groups.setdefault((candidate, mode), []).append(parts)
    for (candidate, mode), members in sorted(groups.items()):
        if len(members) < 2:
            continue
        components = [component(parts) for parts in members]
        tau = tau_of(components)
        yield (
            *(candidate, mode, tau.models),
            f"{100 * tau.value:.2f} [{100 * tau.low:.2f}, {100 * tau.high:.2f}]",
            f"{100 * tau.halves:.2f} [{100 * tau.halves_low:.2f}, {100 * tau.halves_high:.2f}]",
            f"{100 * statistics.fmean(one.within for one in components):.1f}",
        )


if __name__ == "__main__":
    main()
