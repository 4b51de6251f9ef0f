"""``--doctor``: what on this machine makes timings noisy, how each was read, and what to change.

Everything is read, nothing is set. The noise itself is measured: an eager step
against itself, by the same paired rounds as every run.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.schema import Case, Job, Mode, Protocol, Record
from runner.comparison import CONTROL
from runner.machine import CHECKS, Check, Machine
from runner.noise import noise_of, rounds_for

if TYPE_CHECKING:
    from rich.console import Console

MOST_ROUNDS = 30
MOST_S = 8.0
DIFFERENCE = 0.02
SPECIMEN = "harness.toy:make"
TIMEOUT_S = 180.0


def examine(
    console: Console, machine: Machine | None = None, measure: Callable[[], Record] | None = None
) -> int:
    """Prints what was found, the noise last; always exit code 0."""

    def say(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    machine = machine or this_machine()
    say("This machine, as a place to measure on")
    advice = 0
    for check in checked(machine):
        say(f"  {'!' if check.advice else ' '} {check.name:22} {check.found}  [{check.read}]")
        if check.advice:
            advice += 1
            say(f"      -> {check.advice}")
    say(f"{advice} to look at." if advice else "Nothing to change.")
    say()
    say(f"Eager against itself, up to {MOST_ROUNDS} rounds in a worker (a few seconds) ...")
    for line in noise_lines((measure or measured)()):
        say(f"  {line}")
    return 0


def checked(machine: Machine) -> Iterator[Check]:
    """What every check finds; one that fails says so instead of ending the others."""
    for check in CHECKS:
        try:
            yield from check(machine)
        except (OSError, ValueError, ArithmeticError) as error:
            name = check.__name__.strip("_").replace("_", " ")
            yield Check(name=name, found=f"could not be read ({error})", read="")


def noise_lines(record: Record) -> Iterator[str]:
    """What the rounds of eager against itself say, for people."""
    facts = record.environment
    if facts:
        yield f"Python {facts.get('python')}, torch {facts.get('torch')}, {facts.get('threads')} threads"
    noise = noise_of(record)
    samples = record.samples
    if noise is None or samples is None:
        why = record.failure.message if record.failure is not None else record.status.value
        yield f"could not be measured: {why}"
        return
    times = sorted(samples.baseline_s)
    step_ms = times[len(times) // 2] * 1e3
    yield f"{len(samples)} rounds; a step of {step_ms:.3g} ms varies by {_percent(noise.baseline_cv)}"
    yield f"autocorrelation of the paired ratios: {_number(noise.lag_1)} (near 0 is good)"
    yield f"minor page faults of a step: {_number(noise.baseline_minor_faults)} (steady is good)"
    if noise.stolen_share is not None:
        yield f"stolen by other virtual machines: {_percent(noise.stolen_share)} of the CPU time"
    if noise.throttled_share is not None:
        yield f"stopped by a CPU quota: {_percent(noise.throttled_share)} of the time"
    if noise.involuntary_switches_per_s is not None:
        yield f"lost the CPU to other work {noise.involuntary_switches_per_s:.0f} times a second"
    needed = rounds_for(samples, DIFFERENCE)
    if needed is None:
        yield "too few rounds to say how many a comparison needs"
        return
    yield (
        f"to see a difference of {DIFFERENCE:.0%}, about {needed} rounds are needed here, as things are now "
        f"(95 % interval of +-{DIFFERENCE:.0%})"
    )


def noise_job() -> Job:
    """Eager against itself on the specimen."""
    case = Case(suite=SPECIMEN, name="make", mode=Mode.TRAINING, batch_size=None, published_batch_size=None)
    protocol = replace(
        Protocol(),
        accuracy=False,
        max_rounds=MOST_ROUNDS,
        max_measure_s=MOST_S,
        precision=1e-6,  # never reached: rounds or time end it
        timeout_s=TIMEOUT_S,
    )
    return Job(case=case, device="cpu", dtype="float32", candidates=(CONTROL,), protocol=protocol)


def measured() -> Record:
    """The record of that job, from a worker as every run has it."""
    from runner.executors import Work
    from runner.executors.local import Watch, worker_records

    job = noise_job()
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        log = Path(folder) / "output.log"
        work = Work(job=job, candidates=job.candidates)
        watch = Watch(job, lambda _: None)
        (record,) = worker_records(work, watch, lambda: False, log=log, log_name=str(log))
    return record


def this_machine() -> Machine:
    """The real one."""
    import psutil

    return Machine(root=Path("/"), physical_cores=psutil.cpu_count(logical=False), run=_output)


def _output(command: Sequence[str]) -> str | None:
    """What a command prints; None where there is no such command, or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _percent(share: float | None) -> str:
    return "an unknown share" if share is None else f"{share:.1%}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2g}" if abs(value) < 1 else f"{value:,.0f}"
