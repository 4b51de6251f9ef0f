"""``make gpu-smoke``: the first ten minutes on a GPU. Every part has a time limit; one archive keeps all.

    python -m tests.gpu [--devices=cuda] [--output-dir=DIR] [--only=PART,...] [--patience=N]

The archive holds facts of the machine, each part's output, records and reports, and ``summary.json``; it is
written in any case. ``--devices=cpu`` has the CPU stand in at tiny sizes, so that no line here runs for the
first time on a GPU. A part that takes longer than expected is *slow*, and ends after ``PATIENCE`` times as
long. The exit code is 0 if no part is wrong.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from harness import devices

Result = TypeVar("Result")
ROOT = Path(__file__).parents[2]
GRACE_S = 20.0  # after an interrupt, a run writes what it has
GOOD = ("pass", "pass_due_to_skip", "skip")
PATIENCE = 3.0  # caches of Triton are cold in the first run
FACTS = (
    *(("nvidia-smi", "-q"), ("nvidia-smi", "topo", "-m"), ("lscpu",)),
    (sys.executable, "-m", "pip", "freeze"),
    (sys.executable, "-m", "torch.utils.collect_env"),
)
LARGE = "resnet50"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """``words`` follow the name of the interpreter. ``records``: the part writes a run folder.

    ``limit_s``: how long it should take.
    """

    name: str
    words: tuple[str, ...]
    limit_s: float
    records: bool = True


@dataclass(slots=True, kw_only=True)
class Outcome:
    part: str
    seconds: float
    exit_code: int | None  # None: ended by its limit of time
    statuses: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)  # what should not be so, as sentences
    slow: str = ""


def parts(device: str) -> list[Part]:
    """The parts for this device; tiny ones for a CPU."""
    real = devices.of(device).accelerated
    precisions = "float32,tf32,bfloat16" if devices.of(device).has_tf32 else "float32,bfloat16"

    def plain(name: str, limit_s: float, words: str) -> Part:
        return Part(name=name, words=tuple(words.split()), limit_s=limit_s, records=False)

    def run(name: str, limit_s: float, *words: str) -> Part:
        size = "" if real else "--scale=tiny"
        usual = f"runner.py --devices={device} --quick {size} {' '.join(words)}"
        return Part(name=name, words=tuple(usual.split()), limit_s=limit_s)

    # a CPU compiles C++ for minutes where a GPU's kernels take seconds: it does so once, in "autotuned"
    models, compilers = "NanoGPT_addition,MLP_addition", "aot_eager,inductor"
    graphs, tuned, trained = "inductor_reduce_overhead", "inductor_max_autotune", "NanoGPT_addition"
    large = "inductor,inductor_reduce_overhead --batch-size=64 --repeat=20"
    if not real:
        large = "aot_eager --batch-size=2 --repeat=10"
        models, compilers = "MLP_addition", "aot_eager"
        graphs, tuned, trained = "aot_eager", "inductor", "MLP_addition"
    gpt = "--training --suites=tiny_gpt"
    return [
        plain("doctor", 60.0, f"runner.py --doctor --devices={device}"),
        plain("tests", 240.0, "-m pytest -m gpu -p no:cacheprovider -rs --durations=6 tests/gpu"),
        run(  # convolutions, kinks in float32 with graphs, memory, clocks
            *(LARGE, 240.0, f"--training --suites=timm_models --only={LARGE} --dtypes=float32"),
            f"--compilers=eager,{large}",
        ),
        run(
            *("main-job", 120.0, f"{gpt} --only={models} --dtypes=float32,bfloat16,amp"),
            f"--compilers=eager,{compilers}",
        ),
        run(
            *("operations", 90.0, "--inference --suites=ops --only=softmax,matmul_m,layer_norm"),
            f"--dtypes={precisions} --compilers=eager,{graphs}",
        ),
        run(
            *("generation", 120.0, "--generate --suites=huggingface --only=SmolLM2_135M --dtypes=bfloat16"),
            f"--compilers=eager,{graphs} --new-tokens=16 --prompt-tokens=16",
        ),
        run("autotuned", 120.0, f"{gpt} --only={trained} --dtypes=bfloat16 --compilers={tuned} --explain"),
        run(
            *("alone", 60.0, f"{gpt} --only=MLP_addition --isolate --dtypes=float32"),
            f"--compilers={graphs},eager --no-fork-server",
        ),
    ]


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", default="cuda", metavar="DEVICE", help="cuda, cuda:1; cpu stands in")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="a new folder (default: logs/gpu-...)")
    parser.add_argument("--only", metavar="PART,...", help="some of the parts")
    parser.add_argument(
        "--patience", type=float, default=1.0, metavar="N", help="N times the limits, for a busy machine"
    )
    options = parser.parse_args(words)
    why = in_a_process(refusal, options.devices, options.output_dir)
    if why is not None:
        print(f"error: {why}", file=sys.stderr)
        return 2
    planned = [replace(part, limit_s=part.limit_s * options.patience) for part in parts(options.devices)]
    names = [part.name for part in planned]
    asked = options.only.split(",") if options.only else names
    for name in asked:
        if name not in names:
            parser.error(f"--only: there is no part called {name}; choose from {', '.join(names)}")
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
    folder = options.output_dir or ROOT / "logs" / f"gpu-smoke-{stamp}"
    folder.mkdir(parents=True)
    summary: dict[str, Any] = {"device": options.devices}
    outcomes: list[Outcome] = []
    try:
        write_facts(folder / "facts.txt")
        summary |= in_a_process(facts, options.devices)
        for part in planned:
            if part.name in asked:
                print(f"{part.name} (about {part.limit_s:.0f} s) ...", flush=True)
                outcomes.append(done(part, options.devices, folder))
                print(f"  {told(outcomes[-1])}", flush=True)
    finally:
        summary["seconds"] = sum(outcome.seconds for outcome in outcomes)
        summary["parts"] = [asdict(outcome) for outcome in outcomes]
        (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        archive = folder.with_suffix(".tar.gz")
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(folder, arcname=folder.name)
        print(f"{archive}: {len(outcomes)} parts in {summary['seconds']:.0f} s")
    bad = [outcome.part for outcome in outcomes if outcome.wrong]
    slow = [outcome.part for outcome in outcomes if outcome.slow]
    print(f"look at: {', '.join(bad)}" if bad else "every part did what it should")
    if slow:
        print(f"slow, which is no fault: {', '.join(slow)}")
    return 1 if bad else 0


def write_facts(path: Path) -> None:
    """What commands say of this machine before anything runs on its device."""
    with path.open("wb") as output:
        for command in FACTS:
            output.write(f"# {' '.join(command)}\n".encode())
            output.flush()
            try:
                subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=60, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                output.write(f"{error}\n".encode())


def in_a_process(work: Callable[..., Result], *arguments: object) -> Result:
    """The value of ``work``. This process stays off the device: the doctor would see another user of it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(work, *arguments).result()


def facts(name: str) -> dict[str, Any]:
    """What the device says of itself."""
    device = devices.named(name)
    return {"name": device.model(), **device.facts()}


def refusal(device: str, folder: Path | None) -> str | None:
    """Why nothing can run, as a sentence that names the flag; None if it can."""
    try:
        why = devices.named(device).why_missing()
    except ValueError as error:
        return f"--devices: {error}"
    if why is not None:
        return f"--devices: {device} is not there ({why}); --devices=cpu has the CPU stand in"
    if folder is not None and folder.exists():
        return f"--output-dir: {folder} exists already; give a new folder"
    return None


def done(part: Part, device: str, folder: Path) -> Outcome:
    """Runs the part. Its output is in ``<part>.txt``, its run folder in ``<part>/``."""
    place = folder / part.name
    words = [*part.words, f"--output-dir={place}"] if part.records else [*part.words]
    began = time.monotonic()
    with (folder / f"{part.name}.txt").open("wb") as output:
        output.write(f"# {' '.join(words)}\n".encode())
        output.flush()
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, "GPU_TESTS_ON": device},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = ended(process, PATIENCE * part.limit_s)
    outcome = Outcome(part=part.name, seconds=time.monotonic() - began, exit_code=code)
    if outcome.seconds > part.limit_s:
        outcome.slow = f"{part.limit_s:.0f} s are expected"
    if code is None:
        outcome.wrong.append(f"it was ended after {PATIENCE * part.limit_s:.0f} s")
    elif code != 0:
        outcome.wrong.append(f"exit code {code}")
    if part.records:
        outcome.wrong += of_records(place / "records.jsonl", outcome)
    return outcome


def ended(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """The exit code. None if the process was still running after ``limit_s`` and was ended."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:  # also of Ctrl-C, which does not reach a session of its own
        for how in (signal.SIGINT, signal.SIGKILL) if process.poll() is None else ():
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, how)
                process.wait(GRACE_S)
                break


def of_records(path: Path, outcome: Outcome) -> Iterator[str]:
    """Counts the statuses; yields what is wrong with the records."""
    if not path.exists():
        yield "there are no records"
        return
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    outcome.statuses = dict(Counter(record["status"] for record in records))
    for record in records:
        job = record["job"]
        where = f"{job['case']['name']} {job['dtype']} {record['candidate']}"
        if record["status"] not in GOOD:
            failure = record["failure"] or {}
            yield f"{where}: {record['status']}: {failure.get('message', '')[:200]}"
        elif not record["samples"]:
            yield f"{where}: no samples"
        elif job["case"]["name"] == LARGE:
            yield from (f"{where}: {why}" for why in of_large(record))


def of_large(record: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a record of the large model on a GPU."""
    metrics, environment, samples = record["metrics"], record["environment"], record["samples"]
    if not devices.of(record["job"]["device"]).accelerated:
        return
    if record["parity"]["reference"] != "fp64":
        yield "there is no fp64 reference"
    if "gpu_power_limit_w" in environment and "gpu_clock_max_mhz" not in metrics:
        yield "NVML answers, and no clock was read"
    if record["candidate"] == "eager":
        pairs = zip(samples["baseline_s"], samples["candidate_s"], strict=True)
        ratio = median(first / other for first, other in pairs)
        if abs(ratio - 1) > 0.01:
            yield f"eager over eager is {ratio:.3f}"
    eager, own = (metrics.get(f"{side}_peak_memory_bytes") for side in ("baseline", "candidate"))
    if eager and own and not 0.5 <= own / eager <= 2:
        yield f"its peak memory is {own / eager:.2f} of eager's"


def told(outcome: Outcome) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in outcome.statuses.items())
    text = f"{outcome.seconds:.0f} s" + (f", {counts}" if counts else "")
    text += f" (slow: {outcome.slow})" if outcome.slow else ""
    return text + "".join(f"\n    ! {sentence}" for sentence in outcome.wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
