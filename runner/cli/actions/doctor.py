"""``--doctor``: eight facts of the machine that make timings noisy, and the noise of eager against itself."""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness import devices
from harness.hardware.cpus import usable_cpus
from harness.schema import Case, Job, Mode, Protocol, Record
from harness.settings import Given, Group, flag
from runner.cli.exit_codes import FAILURES, OK
from runner.errors import UsageError

DIFFERENCE = Protocol().noise_threshold
BUSY, LEAST_MEMORY = 0.1, 0.1  # load for each CPU; share that is available
NVIDIA = ("nvidia-smi", "--format=csv,noheader")
FLAGS = (
    flag("--doctor", group=Group.ACTIONS, help="check this machine: how noisy it is, and what to change"),
)
NOISE = {
    "n": "{rounds} rounds; a step of {baseline_ms} varies by {baseline_cv}",
    "lag_1": "autocorrelation of the paired ratios: {lag_1} (near 0 is good)",
    "stolen_share": "stolen by other virtual machines: {stolen_share} of the CPU time",
    "throttled_share": "stopped by a CPU quota: {throttled_share} of the time",
    "involuntary_switches_per_s": "lost the CPU to other work: {involuntary_switches_per_s}",
}  # what is said if the column of this name has a value
Fact = tuple[str, str, str]  # name, state, and what to change ("": nothing)


def parse(given: Given) -> str | None:
    """The device to measure; None: a run's default."""
    if "devices" not in given:
        return None
    from runner.plan.probe import check_devices

    device = ",".join(given["devices"])
    try:
        devices.named(device)
    except ValueError as error:
        raise UsageError(f"--devices: {error}; --doctor examines one device") from None
    check_devices([device])
    return device


def perform(request: str | None, argv: Sequence[str]) -> int:
    from rich.console import Console

    console = Console()
    for name, state, advice in facts(Path("/"), os.environ, len(usable_cpus())):
        console.print(f"{'!' if advice else ' '} {name:22} {state}", markup=False)
        if advice:
            console.print(f"    -> {advice}", markup=False)
    console.print("Eager against itself, in a worker (a few seconds):")
    record = measured(request)
    for line in noise_lines(record):
        console.print(f"  {line}", markup=False)
    return OK if record.samples is not None else FAILURES


def facts(root: Path, environment: Mapping[str, str], cpus: int) -> Iterator[Fact]:
    """What the files of this root say. A file that is not there, or says nothing known, gives no fact."""

    def text(name: str) -> str:
        file = next(root.glob(name), None)
        return file.read_text(encoding="utf-8", errors="replace").strip() if file is not None else ""

    if load := text("proc/loadavg"):
        busy = float(load.split()[0]) > BUSY * cpus
        state = f"{load.split()[0]} in the last minute, {cpus} usable CPUs"
        yield "load", state, "other processes take CPU time: end them, or wait" if busy else ""
    threads = environment.get("OMP_NUM_THREADS", "torch's choice")
    many = threads.isdigit() and int(threads) > cpus
    yield "threads", threads, f"more than the usable CPUs: --threads={cpus}" if many else ""
    quota, _, period = text("sys/fs/cgroup/cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        allowed = int(quota) / int(period)
        few = f"above it all threads are stopped: --threads={max(1, int(allowed))}" if allowed < cpus else ""
        yield "CPU quota", f"{allowed:g} CPUs", few
    sizes = dict(line.split()[:2] for line in text("proc/meminfo").splitlines() if len(line.split()) > 1)
    if "MemTotal:" in sizes and "MemAvailable:" in sizes:
        total, available = (int(sizes[name]) / 2**20 for name in ("MemTotal:", "MemAvailable:"))
        little = "end other processes, or use --max-memory" if available < LEAST_MEMORY * total else ""
        yield "memory", f"{available:.1f} of {total:.1f} GiB available", little
    if governor := text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"):
        steady = governor == "performance"
        advice = "the clock follows the load: sudo cpupower frequency-set -g performance"
        yield "CPU governor", governor, "" if steady else advice
    pages = text("sys/kernel/mm/transparent_hugepage/enabled").partition("[")[2].partition("]")[0]
    if pages:
        moved = "the kernel moves memory in the background: use madvise" if pages == "always" else ""
        yield "transparent huge pages", pages, moved
    for line in _output(*NVIDIA, "--query-gpu=name,utilization.gpu,persistence_mode"):
        off = "the driver unloads between runs: sudo nvidia-smi -pm 1" if "Disabled" in line else ""
        yield "GPU", line, off
    for line in _output(*NVIDIA, "--query-compute-apps=pid,process_name,used_memory"):
        yield "another GPU user", line, "wait for it, or use another device"


def _output(*command: str) -> list[str]:
    """The lines that the command prints; none if it does not exist or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.strip().splitlines()


def noise_lines(record: Record) -> Iterator[str]:
    """The noise in the rounds of eager against itself, as sentences."""
    from runner.analysis.columns import columns
    from runner.analysis.derive import compare
    from runner.analysis.findings import Known

    environment, samples = record.environment, record.samples
    if environment:
        names = ("python", "torch", "threads", "device_name")
        yield ", ".join(f"{name} {environment[name]}" for name in names if environment.get(name))
    (comparison,) = compare([record])
    if not comparison.n or samples is None:
        yield f"could not be measured: {record.failure.message if record.failure else record.status.value}"
        return
    for column, sentence in NOISE.items():
        if columns()[column].value(comparison) is not None:
            yield sentence.format_map(Known(comparison))
    half = None if comparison.estimate is None else comparison.estimate.rounds_half
    if half:
        needed = math.ceil(len(samples) * (half / math.log1p(DIFFERENCE)) ** 2)
        yield f"to see a difference of {DIFFERENCE:.0%}, about {needed} rounds are needed at this noise"
    else:
        yield "too few rounds to say how many a comparison needs"


def measured(device: str | None = None) -> Record:
    """Eager against itself, measured by a worker as in every run. None: on a run's default device."""
    from runner.analysis.results import CONTROL
    from runner.cli.commands import job_command
    from runner.engine import JobContext, Place
    from runner.engine.launch import measure_job
    from runner.plan.probe import missing_devices

    likely = device or devices.likely()
    if device is None and devices.of(likely).accelerated and (why := missing_devices([likely]).get(likely)):
        print(f"  This machine seems to have a GPU, but {why}: the CPU is measured.")
        likely = "cpu"
    suite = "harness.probes.toy:make"
    case = Case(suite=suite, name="make", mode=Mode.TRAINING, batch_size=None, published_batch_size=None)
    # the width is never reached: the number of rounds or the time ends the job
    protocol = Protocol(accuracy=False, max_rounds=30, max_measure_s=8.0, ci_width=1e-6, timeout_s=180.0)
    job = Job(case=case, device=likely, dtype="float32", candidates=(CONTROL,), protocol=protocol)
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        log = Path(folder) / "output.log"
        place = Place(logs={"": str(log)})
        context = JobContext(candidates=job.candidates, place=place, reproduce=job_command)
        (record,) = measure_job(job, context, log)
    return record
