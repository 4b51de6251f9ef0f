"""What closing a verdict costs: the time of ``--processes=auto`` over that of its first process.

    taskset -c 1 python results/verdicts-cpu/price.py --minutes 20 --keep logs/price    # measures, then prints
    python results/verdicts-cpu/price.py --keep logs/price --minutes 0                  # prints
    ... --minutes 0 --calibration results/verdicts-cpu/calibrate    # from the same processes: had it been calibrated

Ten models of each suite, in a random order that is always the same; inference and training in turn;
inductor, parity checked, empty compile caches for each job, one thread. A job is measured alone. Without
``auto``, workers are forked from a host that has imported everything, so the time of importing is taken off
the first process. Kept beside its results. No check covers it.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from harness.codec import from_json, to_json  # noqa: E402 - nothing is installed
from harness.schema import Protocol, Record  # noqa: E402
from how import processes_of  # noqa: E402
from runner.analysis.estimate import Limits, PairedEstimate  # noqa: E402
from runner.analysis.verdicts.calibration import calibrated  # noqa: E402
from runner.analysis.verdicts.decision import verdict  # noqa: E402
from runner.cli.commands import job_command  # noqa: E402
from runner.cli.parser import given  # noqa: E402
from runner.engine import JobContext, Pause, Place  # noqa: E402
from runner.engine.launch import measure_in_turns  # noqa: E402
from runner.plan.checks import run_config  # noqa: E402
from runner.plan.jobs import plan  # noqa: E402
from runner.store.calibrations import Calibration, read_calibrations  # noqa: E402
from runner.store.record_file import read_records  # noqa: E402

SUITES = {"tiny_gpt": "", "timm_models": ", timm", "huggingface": ", transformers.modeling_utils"}
MODELS = 10  # of each suite
CLOSED = ("faster", "slower", "same")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, required=True, help="begin no job after this time")
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--calibration", type=Path, help="a run of --calibrate; its values of tau decide")
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    file = options.keep / "price.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {row["job"] for row in rows}
    imports = {} if options.minutes <= 0 else {suite: import_s(more) for suite, more in SUITES.items()}
    began = time.monotonic()
    for job in jobs() if imports else ():
        if time.monotonic() - began > 60 * options.minutes:
            break
        if job.key not in done:
            rows.append(measured(job, options.keep / job.key, imports[job.case.suite]))
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(rows[-1]) + "\n")
    known = None
    if options.calibration:
        (known,) = calibrated(read_records(options.calibration / "records.jsonl").records)
    print_table(rows, known)


def jobs() -> list:
    chosen = {}
    for mode in ("inference", "training"):
        words = ["--suites=" + ",".join(SUITES), f"--{mode}", "--inductor", "--devices=cpu", "--threads=1"]
        for job in plan(run_config(given([*words, "--processes=auto"]))):
            chosen.setdefault(job.case.suite, {}).setdefault(job.case.name, {})[mode] = job
    draw, sample = random.Random(36), []
    for models in chosen.values():
        names = draw.sample(sorted(models), MODELS)
        sample += [models[name][("inference", "training")[place % 2]] for place, name in enumerate(names)]
    draw.shuffle(sample)
    return sample


def import_s(more: str) -> float:
    """Seconds of the imports that a host has done for all of its workers."""
    code = f"import torch, torch._dynamo, torch._inductor.compile_fx{more}"
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    return time.monotonic() - began


def measured(job, folder: Path, imports_s: float) -> dict:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")
    log, pauses, records = folder / "output.log", [], []
    context = JobContext(
        candidates=job.candidates,
        place=Place(logs={"": str(log)}),
        reproduce=job_command,
        calibrations=read_calibrations(),
    )
    began = time.monotonic()
    for step in measure_in_turns(job, context, log):
        if isinstance(step, Pause):
            pauses.append(time.monotonic() - began)
        else:
            records.append(step)
    whole = time.monotonic() - began
    shutil.rmtree(folder / "cache", ignore_errors=True)
    first = (pauses[0] if pauses else whole) - imports_s
    print(
        f"{job.key}: {first:.0f} s, {whole:.0f} s, {len(pauses) + 1} processes", file=sys.stderr, flush=True
    )
    # one process of its own closes a verdict where ``auto`` needs no second one, too
    ends = [*pauses, whole]  # of each process
    return {
        "job": job.key,
        "first_s": first,
        "whole_s": whole,
        "ends_s": ends,
        "records": [to_json(one) for one in records],
    }


def print_table(rows: list, calibration: Calibration | None) -> None:
    shown = [shown_row(row, calibration) for row in rows]
    headers = ("job", "eager, ms", "first alone", "processes", "auto", "first s", "auto s", "price")
    print(tabulate(shown, headers=headers, floatfmt=("", ".0f", "", "", "", ".0f", ".0f", ".2f")))
    timed = [row for row in shown if row[3]]
    if timed:
        alone, after = (sum(row[place] in CLOSED for row in timed) for place in (2, 4))
        first, whole = (sum(row[place] for row in timed) for place in (5, 6))
        print(
            f"{len(timed)} of {len(shown)} jobs are timed: the first process closes {alone} verdicts, auto {after}; "
            f"price {whole / first:.2f} in all, {median(row[7] for row in timed):.2f} median"
        )


def shown_row(row: dict, calibration: Calibration | None) -> tuple:
    """Of one job: what the first process alone says, and what auto does, with its time."""
    (record,) = (from_json(Record, one) for one in row["records"])
    if record.samples is None or not record.status.passed:
        return (row["job"], None, record.status.value, 0, "", row["first_s"], row["whole_s"], None)
    (processes,) = processes_of([record])
    if calibration is not None:
        processes = processes.as_of(calibration)
    used = processes.automatic(0)
    whole_s = row["ends_s"][len(used) - 1]
    first, after = (word_of(processes.estimate(numbers, processes.tau)) for numbers in ([0], used))
    price = whole_s / row["first_s"]
    return (row["job"], 1e3 * processes.step_s, first, len(used), after, row["first_s"], whole_s, price)


def word_of(estimate: PairedEstimate) -> str:
    word = verdict(estimate, estimate.p_value, Limits.of(Protocol()))
    return "" if word is None else word.value


if __name__ == "__main__":
    main()
