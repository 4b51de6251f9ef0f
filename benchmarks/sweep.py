"""How long a sweep of a suite takes with ``--prepare-ahead``: the real parent with made-up workers.

    python benchmarks/sweep.py results/matrix-cpu                 # 200 jobs on 2, 16 and 64 cores
    python benchmarks/sweep.py results/matrix-cpu --cores 16 --ahead 8 10 15

The made-up workers take the seconds that the workers of a finished run took: each job of the sweep is a job
of that run, drawn at random. Preparation (build, eager, fp64, compilation, checks) runs at full speed while
there are ``CORES_A_JOB`` cores for each job that prepares; with fewer, the jobs share the cores. Timing runs
at full speed, because nothing runs beside it. The seconds are those of a made-up clock.

The last column is computed: a process for each number, as harnesses without sessions have it. For each
candidate, one process checks and another is timed; both start, build and compile.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import new_parser, records_of  # noqa: E402 - nothing is installed
from benchmarks.efficiency import spent  # noqa: E402
from harness.schema import Record  # noqa: E402
from runner.cli.commands import job_command  # noqa: E402
from runner.cli.measuring import measure_missing  # noqa: E402
from runner.engine import Gate  # noqa: E402
from runner.engine.executors import Stop, Work  # noqa: E402
from runner.engine.executors.ahead import jobs_ahead  # noqa: E402
from runner.engine.executors.local import LocalExecutor, Watch  # noqa: E402
from runner.store.run_folder import RunFolder  # noqa: E402

LOOK_S, LOOKS = 0.003, 3  # the clock jumps if so many looks, this far apart, found that nothing runs
CORES_A_JOB = 1.5  # that a preparing job keeps busy: torch compiles in one process and helps itself to others
START_S = 6.0  # of a process that imports torch and a model library; benchmarks/start_up.py measures it
MEMORY_BYTES = 8e9  # of the simulated machine, for each core


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of one job, and the record that it gives for each candidate."""

    build: float
    compile: float
    check: float
    timed: float
    records: tuple[Record, ...]

    @property
    def prepared(self) -> float:
        return self.build + self.compile + self.check

    @property
    def separately(self) -> float:
        """With two processes for each candidate."""
        return 2 * (len(self.records) * (START_S + self.build) + self.compile) + self.check + self.timed


def _others_run() -> bool:
    """Whether another thread of this process runs, or waits for a processor (Linux)."""
    own = str(threading.get_native_id())
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            state = (task / "stat").read_bytes().rpartition(b")")[2].split()[0]
            if state != b"S" and task.name != own:
                return True
    return False


@dataclass(slots=True, eq=False)
class _Sleeper:
    left: float
    prepares: bool
    over: threading.Event = field(default_factory=threading.Event)


class Machine:
    """Cores that preparing jobs share, and a clock that jumps to the next end of a preparation or timing.

    It jumps when all threads of the parent wait. What the parent does takes no time.
    """

    def __init__(self, cores: int) -> None:
        self.now = 0.0
        self._cores = cores
        self._sleepers: list[_Sleeper] = []
        self._arrived = 0
        self._lock = threading.Lock()

    def sleep(self, seconds: float, *, prepares: bool) -> None:
        sleeper = _Sleeper(seconds, prepares)
        with self._lock:
            self._sleepers.append(sleeper)
            self._arrived += 1
        sleeper.over.wait()

    def run(self, ended: threading.Event) -> None:
        seen, quiet = 0, 0
        while not ended.wait(LOOK_S):
            with self._lock:
                quiet = quiet + 1 if seen == self._arrived and not _others_run() else 0
                seen = self._arrived
                if self._sleepers and quiet >= LOOKS:
                    self._jump()
                    quiet = 0

    def _jump(self) -> None:
        preparing = sum(one.prepares for one in self._sleepers)
        shared = min(1.0, self._cores / (CORES_A_JOB * preparing)) if preparing else 1.0
        speeds = {one: shared if one.prepares else 1.0 for one in self._sleepers}
        step = min(one.left / speed for one, speed in speeds.items())
        self.now += step
        for one, speed in speeds.items():
            one.left -= step * speed
        for one in [one for one in self._sleepers if one.left < 1e-9]:
            self._sleepers.remove(one)
            one.over.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """Seconds until the sweep, half of its jobs, and its first job had ended."""

    whole: float
    half: float
    first: float


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("run", type=Path, nargs="+", help="folders of finished runs")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--cores", type=int, nargs="+", default=[2, 16, 64])
    parser.add_argument("--ahead", type=int, nargs="+", help="of --prepare-ahead; else 2 and the default")
    options = parser.parse_args()
    known = times_of([record for run in options.run for record in records_of(run)])
    draw = random.Random(1)
    sweep = [draw.choice(known) for _ in range(options.jobs)]
    prepared, timed = sum(one.prepared for one in sweep), sum(one.timed for one in sweep)
    print(f"{len(sweep)} jobs: {prepared:.0f} s of preparation and {timed:.0f} s of timing\n")
    alone = prepared + timed
    separately = sum(one.separately for one in sweep)
    rows = []
    for cores in options.cores:
        default = jobs_ahead([one.records[0].job for one in sweep], cores, MEMORY_BYTES * cores)
        for ahead in sorted({*(options.ahead or (default, 2))}):
            swept = simulated(sweep, cores, ahead)
            shown = f"{ahead} (default)" if ahead == default else str(ahead)
            times = (swept.first, swept.half, swept.whole)
            rows.append((cores, shown, *times, swept.whole / alone, alone / separately))
    headers = (
        "cores",
        "--prepare-ahead",
        "first\nresult s",
        "half of\nthem s",
        "all s",
        "of --prepare-\nahead=1",
        "--prepare-ahead=1 of\none process a number",
    )
    print(tabulate(rows, headers=headers, floatfmt=("", "", ".0f", ".0f", ".0f", ".3f", ".2f")))


def times_of(records: Sequence[Record]) -> list[Times]:
    """The times of every job whose candidates were all timed."""
    jobs: dict[str, list[Record]] = {}
    for record in records:
        jobs.setdefault(record.job.key, []).append(record)
    found = []
    for together in jobs.values():
        if all(record.samples is not None for record in together):
            parts = spent(together)
            timed = ("timed samples s", "warm-up s", "between samples s", "finish s")
            found.append(
                Times(
                    build=parts["build s"],
                    compile=parts["compile s"],
                    check=parts["eager, fp64, check s"],
                    timed=sum(parts[name] for name in timed),
                    records=tuple(together),
                )
            )
    return found


def simulated(sweep: Sequence[Times], cores: int, ahead: int) -> Swept:
    """The sweep on a machine with so many cores."""
    plan = [
        replace(
            one.records[0].job,
            case=replace(one.records[0].job.case, name=f"model_{number}"),
            candidates=tuple(record.candidate for record in one.records),
        )
        for number, one in enumerate(sweep)
    ]
    by_name = {job.case.name: one for job, one in zip(plan, sweep, strict=True)}
    machine = Machine(cores)
    ended: list[float] = []

    def made_up(work: Work, watch: Watch, stop: Stop, gate: Gate) -> Iterator[Record]:
        one = by_name[work.job.case.name]
        with gate.preparing():
            machine.sleep(one.prepared, prepares=True)
        with gate.timing():
            machine.sleep(one.timed, prepares=False)
        ended.append(machine.now)
        for record in one.records:
            yield replace(record, job=work.job)

    executor = LocalExecutor(
        job_command,
        measure=made_up,
        fork=False,
        ahead=ahead,
        available=lambda: int(MEMORY_BYTES * cores),
    )
    with tempfile.TemporaryDirectory(prefix="torchduet-sweep-") as temporary:
        folder = RunFolder.create(Path(temporary) / "run", plan, ["benchmark"])
        console = Console(file=io.StringIO(), width=100)
        over = threading.Event()
        clock = threading.Thread(target=machine.run, args=(over,))
        clock.start()
        try:
            measure_missing(folder, plan, console, executor)
        finally:
            over.set()
            clock.join()
    return Swept(whole=machine.now, half=ended[len(ended) // 2], first=ended[0])


if __name__ == "__main__":
    main()
