"""``--doctor``: what makes timings noisy on this machine, where each fact was read, and what to change.

The checks change nothing. The noise is measured: an eager step against itself, in paired rounds.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness import devices
from harness.schema import Case, Job, Mode, Protocol, Record
from harness.settings import Given, Group, flag
from runner.cli.exit_codes import FAILURES, OK
from runner.errors import UsageError
from runner.labels import counted
from runner.store.calibrations import Calibration, matching, read_calibrations

if TYPE_CHECKING:
    from rich.console import Console

    from runner.cli.machine import Machine

MOST_ROUNDS = 30
MOST_S = 8.0
DIFFERENCE = Protocol().noise_threshold
SPECIMEN = "harness.probes.toy:make"
TIMEOUT_S = 180.0
FLAGS = (
    flag("--doctor", group=Group.ACTIONS, help="check this machine: how noisy it is, and what to change"),
)


def parse(given: Given) -> str | None:
    """The device to measure; None: a run's default."""
    if "devices" not in given:
        return None
    from runner.plan.possible import check_devices

    device = ",".join(given["devices"])
    try:
        devices.named(device)
    except ValueError as error:
        raise UsageError(f"--devices: {error}; --doctor examines one device") from None
    check_devices([device])
    return device


def perform(request: str | None, argv: Sequence[str]) -> int:
    from rich.console import Console

    return examine(Console(), None, partial(measured, request))


def examine(console: Console, machine: Machine | None, measure: Callable[[], Record]) -> int:
    """Prints the checks, then the noise. The exit code is 0 if the noise could be measured."""
    from runner.cli.machine import checked, this_machine
    from runner.reports.parts.grid import say

    say(console, "Conditions for measurements on this machine")
    checks = [*checked(machine or this_machine())]
    for check in checks:
        say(console, f"  {'!' if check.advice else ' '} {check.name:22} {check.state}  [{check.read}]")
        if check.advice:
            say(console, f"      -> {check.advice}")
    advice = sum(bool(check.advice) for check in checks)
    say(console, f"{advice} to look at.\n" if advice else "Nothing to change.\n")
    say(console, f"Eager against itself, up to {MOST_ROUNDS} rounds in a worker (a few seconds) ...")
    record = measure()
    for line in noise_lines(record, read_calibrations()):
        say(console, f"  {line}")
    return OK if record.samples is not None else FAILURES


def noise_lines(record: Record, calibrations: Sequence[Calibration] = ()) -> Iterator[str]:
    """The noise in the rounds of eager against itself, as sentences."""
    from runner.analysis.caveats import age_text
    from runner.analysis.columns import columns
    from runner.analysis.derive import compare
    from runner.analysis.findings import Known

    facts = record.environment
    if facts:
        threads = facts.get("threads")
        number = counted(threads, "thread") if isinstance(threads, int) else "threads unknown"
        yield f"Python {facts.get('python')}, torch {facts.get('torch')}, {number}"
    if facts.get("device"):
        yield f"on {facts['device']}: {facts.get('device_name')}"
    (comparison,) = compare([record])
    samples = record.samples
    if comparison.noise is None or samples is None:
        why = record.failure.message if record.failure is not None else record.status.value
        yield f"could not be measured: {why}"
        return
    for column, sentence in NOISE.items():
        if columns()[column].value(comparison) is not None:
            yield sentence.format_map(Known(comparison))
    estimate = comparison.estimate
    half = None if estimate is None else estimate.rounds_half
    needed = half and math.ceil(len(samples) * (half / math.log1p(DIFFERENCE)) ** 2)
    yield (
        "too few rounds to say how many a comparison needs"
        if needed is None
        else f"to see a difference of {DIFFERENCE:.0%}, about {needed} rounds are needed at this noise "
        f"(95 % interval of +-{DIFFERENCE:.0%})"
    )
    known = matching(calibrations, facts)
    yield (
        f"variation between processes: calibrated on {age_text(known.date, record.ended)}"
        if known is not None
        else "variation between processes: not calibrated under these conditions; --calibrate measures it, "
        "and later verdicts use it"
    )


def noise_job(device: str = "cpu") -> Job:
    """The job that measures eager against itself on this device."""
    from runner.analysis.comparison import CONTROL

    case = Case(suite=SPECIMEN, name="make", mode=Mode.TRAINING, batch_size=None, published_batch_size=None)
    protocol = Protocol(
        accuracy=False,
        max_rounds=MOST_ROUNDS,
        max_measure_s=MOST_S,
        ci_width=1e-6,  # never reached: the number of rounds or the time ends the job
        timeout_s=TIMEOUT_S,
    )
    return Job(case=case, device=device, dtype="float32", candidates=(CONTROL,), protocol=protocol)


def default_device() -> tuple[str, str]:
    """The device of a run without ``--devices``, and why it is not the GPU ("": it is, or there is none)."""
    from runner.plan.probe import missing_devices

    likely = devices.likely()
    if not devices.of(likely).accelerated:
        return likely, ""
    why = missing_devices([likely]).get(likely, "")
    return ("cpu" if why else likely), why


def measured(device: str | None = None) -> Record:
    """The record of ``noise_job``, measured by a worker as in every run. None: on a run's default device."""
    from runner.cli.commands import job_command
    from runner.engine import JobContext, Place
    from runner.engine.launch import measure_job

    device, why = (device, "") if device is not None else default_device()
    if why:
        print(f"  This machine seems to have a GPU, but {why}: the CPU is measured.")
    job = noise_job(device)
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        log = Path(folder) / "output.log"
        place = Place(logs={"": str(log)})
        context = JobContext(candidates=job.candidates, place=place, reproduce=job_command)
        (record,) = measure_job(job, context, log)
    return record


NOISE = {
    "n": "{rounds} rounds; a step of {baseline_ms} varies by {baseline_cv}",
    "lag_1": "autocorrelation of the paired ratios: {lag_1} (near 0 is good)",
    "baseline_minor_faults": "minor page faults of a step: {baseline_minor_faults} (steady is good)",
    "stolen_share": "stolen by other virtual machines: {stolen_share} of the CPU time",
    "throttled_share": "stopped by a CPU quota: {throttled_share} of the time",
    "involuntary_switches_per_s": "lost the CPU to other work: {involuntary_switches_per_s}",
}
"""What is said if the column of this name has a value."""
