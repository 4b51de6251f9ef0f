"""``--prepare-ahead``: jobs prepare side by side, and each is timed while nothing else runs."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from harness.schema import CompilerOptions, Extras, Job, Record, Status
from runner.analysis.columns import columns
from runner.analysis.derive import summarize
from runner.engine.executors import Event, Stop, Waits, Work
from runner.engine.executors.ahead import GROWTH, LEAST_BYTES, FreeMemory, crowded, jobs_ahead
from runner.engine.executors.local import Lanes, Tell
from runner.engine.gate import CHECK_S, DeviceGate, Seat, State, sessions
from tests.factories import known, make_job, make_record
from tests.unit.test_execute import Script, failed, lost, run, statuses
from tests.unit.test_executors import PATIENCE_S, work

SHORT_S = 0.002
GB = 10**9


class World:
    """Made-up jobs on one device. Notes what happens, and refuses what must not."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        self.lock = threading.Lock()
        self.preparing: set[str] = set()
        self.timed: list[str] = []
        self.timing = ""
        self.open: set[str] = set()
        self.most_preparing = self.most_open = 0
        self.alone: set[str] = set()
        self.faults: list[str] = []
        self.random = random.Random(7)

    def measure(self, task: Work, tell: Tell, stop: Stop, gate: Seat) -> Iterator[Record]:
        name = task.job.case.name
        with gate.preparing(), self._prepares(name):
            time.sleep(self.random.random() * SHORT_S)
        if self.wants_to_be_alone(name) and gate.asks_to_be_alone():
            self._closes(name)
            with gate.preparing(), self._prepares(name):
                if self.open != {name}:
                    self.faults.append(f"{name} is not alone: {self.open}")
            self.alone.add(name)
        with gate.timing():
            if not stop():
                self._times(name)
        self._closes(name)
        yield Record(job=task.job, candidate="a", status=Status.PASS, metrics={"beside": gate.beside})

    def wants_to_be_alone(self, name: str) -> bool:
        return False

    @contextmanager
    def _prepares(self, name: str) -> Iterator[None]:
        with self.lock:
            self.preparing.add(name)
            self.open.add(name)
            self.most_preparing = max(self.most_preparing, len(self.preparing))
            self.most_open = max(self.most_open, len(self.open))
            if self.timing:
                self.faults.append(f"{name} prepares while {self.timing} is timed")
        try:
            yield
        finally:
            with self.lock:
                self.preparing.discard(name)

    def _times(self, name: str) -> None:
        with self.lock:
            if self.preparing or self.timing:
                self.faults.append(f"{name} is timed beside {self.preparing or self.timing}")
            self.timing = name
            self.timed.append(name)
        time.sleep(SHORT_S / 4)
        with self.lock:
            self.timing = ""

    def _closes(self, name: str) -> None:
        with self.lock:
            self.open.discard(name)

    def run(
        self, jobs: Sequence[Work], stop: Stop = lambda: False, room: Callable[[int], bool] = lambda _: True
    ) -> list[Event]:
        return list(Lanes(self.measure, stop, ahead=self.ahead, room=room).run([jobs]))


def records(events: Sequence[Event]) -> list[Record]:
    return [event for event in events if isinstance(event, Record)]


JOBS = [work(f"m{number}", "cpu", ("a",)) for number in range(40)]
NAMES = [work.job.case.name for work in JOBS]


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the jobs in the order in which they began to prepare."""
    numbers: list[int] = []
    enter = DeviceGate.enter

    def noting(gate: DeviceGate, seat: Seat, state: State) -> None:
        if state is State.PREPARES:
            numbers.append(seat.number)
        enter(gate, seat, state)

    monkeypatch.setattr(DeviceGate, "enter", noting)
    return numbers


@pytest.mark.parametrize("ahead", [1, 2, 3, 4, 8])
def test_every_job_is_timed_once_in_order_while_nothing_else_runs(began: list[int], ahead: int) -> None:
    world = World(ahead)
    run_records = records(world.run(JOBS))
    assert (world.faults, began) == ([], [*range(len(JOBS))])
    assert world.timed == NAMES == sorted((r.job.case.name for r in run_records), key=NAMES.index)
    assert world.most_preparing <= ahead
    assert world.most_open <= sessions(ahead)


def test_without_the_gate_jobs_are_timed_beside_others() -> None:
    class Ungated(World):
        def measure(self, task: Work, tell: Tell, stop: Stop, gate: Seat) -> Iterator[Record]:
            return super().measure(task, tell, stop, DeviceGate().seat())

    world = Ungated(4)
    world.run(JOBS)
    assert world.faults


def test_several_jobs_prepare_at_once_and_know_it() -> None:
    both = threading.Barrier(2, timeout=PATIENCE_S)

    class Meeting(World):
        def measure(self, task: Work, tell: Tell, stop: Stop, gate: Seat) -> Iterator[Record]:
            with gate.preparing():
                both.wait()
            with gate.timing():
                pass
            yield Record(job=task.job, candidate="a", status=Status.PASS, metrics={"beside": gate.beside})

    run_records = records(Meeting(2).run(JOBS[:8]))
    assert [record.metrics["beside"] for record in run_records] == [1] * 8


@pytest.mark.parametrize("most", [1, 3])
def test_memory_limits_how_many_are_open(most: int) -> None:
    world = World(4)
    world.run(JOBS, room=lambda opened: opened < most)
    assert world.faults == []
    assert world.most_open <= most
    assert len(world.timed) == len(JOBS)


def test_a_job_that_ran_out_of_memory_beside_others_has_the_device_for_itself() -> None:
    class Large(World):
        def wants_to_be_alone(self, name: str) -> bool:
            return name in {"m1", "m2", "m9", "m30"}

    world = Large(3)
    world.run(JOBS)
    assert world.faults == []
    assert world.alone  # those that had others beside them
    assert len(world.timed) == len(JOBS)


def test_a_neighbor_that_has_ended_since_counts_too() -> None:
    """It may have held the memory for which this job was killed."""
    gate = DeviceGate(ahead=2)
    first, second = gate.seat(), gate.seat(1)
    for seat in (first, second):
        gate.enter(seat, State.PREPARES)
    second.end_job()
    assert first.asks_to_be_alone()
    assert not DeviceGate(ahead=2).seat().asks_to_be_alone()


def test_an_abandoned_run_ends_the_jobs_that_wait() -> None:
    abandoned = threading.Event()

    def measure(task: Work, tell: Tell, stop: Stop, gate: Seat) -> Iterator[Record]:
        with gate.preparing():
            pass
        if task.job.case.name == "m1":
            abandoned.wait(PATIENCE_S)  # so m0 can never be timed
        with gate.timing():
            pass
        yield Record(job=task.job, candidate="a", status=Status.PASS)

    before = threading.active_count()
    running = Lanes(measure, lambda: False, abandoned, ahead=2).run([JOBS[:2]])
    while not isinstance(next(running), Waits):
        pass
    running.close()
    assert threading.active_count() == before


def test_an_error_in_a_job_does_not_leave_the_others_waiting() -> None:
    class Broken(World):
        def _times(self, name: str) -> None:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        Broken(3).run(JOBS)


def test_a_clock_tells_how_long_a_job_waited() -> None:
    now = [0.0]
    gate = DeviceGate(2, clock=lambda: now[0])
    first, second = gate.seat(), gate.seat()
    prepared = threading.Event()

    def prepare_and_leave() -> None:
        with second.preparing():
            prepared.set()
            while first.state is not State.WANTS_TO_BE_TIMED:
                time.sleep(0.001)
            now[0] = 5.0
        second.leave()

    first.begin(0, lambda: None)
    with first.preparing():
        other = threading.Thread(target=prepare_and_leave)
        other.start()
        prepared.wait(PATIENCE_S)
    with first.timing() as waited_s:
        assert waited_s == 5.0
    other.join()


def test_jobs_that_wait_leave_the_processor_to_the_job_that_is_timed() -> None:
    """They once woke each other without end."""
    looks = [0]
    long_s = 3 * CHECK_S

    def look() -> None:
        looks[0] += 1

    gate = DeviceGate(3, check=look)
    seats = [gate.seat() for _ in range(4)]

    def job(seat: Seat) -> None:
        with seat.preparing():
            pass
        with seat.timing():
            if seat is seats[0]:
                time.sleep(long_s)
        seat.leave()

    began = time.monotonic()
    threads = [threading.Thread(target=job, args=(seat,)) for seat in seats]
    for number, (seat, thread) in enumerate(zip(seats, threads, strict=True)):
        seat.number = number
        thread.start()
    for thread in threads:
        thread.join()
    a_seat = (time.monotonic() - began) / CHECK_S + 1
    others = 3 * len(seats)  # wakes by the others' changes
    assert looks[0] <= len(seats) * (a_seat + others)


def test_free_memory_is_judged_by_what_jobs_took() -> None:
    free = [20 * GB]
    memory = FreeMemory(available=lambda: free[0])
    assert memory.suffices(1)  # nothing is known: LEAST_BYTES
    free[0] = 14 * GB
    assert memory.suffices(1)  # the open job has 6 GB, and 12 GB are enough for another
    free[0] = 8 * GB
    assert not memory.suffices(2)
    assert GROWTH * 6 * GB > 8 * GB > LEAST_BYTES
    limited = FreeMemory(limit=9 * GB, available=lambda: free[0])
    assert not limited.suffices(1)
    free[0] = 11 * GB
    assert limited.suffices(1)


def with_threads(threads: int | None) -> Job:
    job = JOBS[0].job
    return replace(job, protocol=replace(job.protocol, threads=threads))


@pytest.mark.parametrize(
    ("threads", "cpus", "memory", "expected"),
    [
        *((1, 1, 64, 1), (1, 2, 24, 1), (1, 4, 24, 2), (1, 16, 64, 10), (1, 16, 20, 3), (1, 64, 512, 32)),
        *((1, 64, 128, 21), (1, 16, 2, 1), (None, 16, 512, 1), (4, 16, 512, 4), (16, 16, 512, 1)),
    ],
)
def test_jobs_ahead_by_default(threads: int | None, cpus: int, memory: int, expected: int) -> None:
    assert jobs_ahead([with_threads(threads)], cpus, memory * GB) == expected


@pytest.mark.parametrize(
    ("threads", "ahead", "advice"),
    [
        *((None, 1, ""), (None, 4, "--threads=4"), (4, 4, ""), (8, 4, "--threads=4")),
        (1, 20, "--prepare-ahead=16"),
    ],
)
def test_too_many_threads_side_by_side_are_named(threads: int | None, ahead: int, advice: str) -> None:
    text = crowded([with_threads(threads)], ahead, 16)
    assert (advice in text) if advice else not text


def test_the_default_is_one_where_compile_times_are_asked_for_or_memory_is_the_devices() -> None:
    plain = with_threads(1)
    alone: tuple[dict[str, Any], ...] = (
        *({"extras": Extras(compile_runs=1)}, {"extras": Extras(start_up=1)}, {"device": "cuda:0"}),
        {"candidates": ("inductor_max_autotune",)},
        {"options": CompilerOptions(inductor_config=("max_autotune=True",))},
    )
    assert jobs_ahead([plain, replace(plain, candidates=("inductor",))], 16, 64 * GB) == 10
    for changes in alone:
        assert jobs_ahead([plain, replace(plain, **changes)], 16, 64 * GB) == 1, changes


class Noting(Seat):
    """A gate that notes when the job passes it. Others are open the first ``crowded`` times."""

    def __init__(self, script: Script, beside: int = 2, crowded: int = 0) -> None:
        super().__init__(DeviceGate(), 0)
        self.script = script
        self.beside = beside
        self.crowded = crowded

    def note(self, text: str) -> None:
        self.script.calls.append((self.script.sessions, text))

    @contextmanager
    def preparing(self) -> Iterator[None]:
        self.note("prepares")
        yield
        self.note("is prepared")

    @contextmanager
    def timing(self) -> Iterator[float]:
        self.note("is timed")
        yield 1000.0
        self.note("was timed")

    def asks_to_be_alone(self) -> bool:
        self.crowded -= 1
        return self.crowded >= 0


def test_a_job_passes_the_gate_before_it_compiles_and_before_it_is_timed() -> None:
    script = Script()
    run_records = run(script, gate=Noting(script), timeout_s=500.0)
    calls = [call for _, call in script.calls]
    assert calls[0] == "prepares"
    assert calls.index("is prepared") == 1 + max(i for i, call in enumerate(calls) if "prepare " in call)
    assert calls[calls.index("is prepared") + 1 :][:2] == ["is timed", "warm_up"]
    assert calls[-2:] == ["conclude", "was timed"]
    assert [record.metrics["prepared_beside"] for record in run_records] == [2, 2, 2]
    deadlines = {name: end for name, end, _ in script.deadlines}
    # waiting for other jobs does not use up --timeout
    assert deadlines["finish"] - deadlines["open"] == 1000.0


@pytest.mark.parametrize("fault", [failed(Status.OOM), lost("b", signal="SIGKILL")])
def test_memory_that_others_held_costs_a_candidate_nothing(fault: object) -> None:
    script = Script({(1, "prepare", "b"): fault})  # type: ignore[dict-item]
    run_records = run(script, gate=Noting(script, crowded=1))
    assert (set(statuses(run_records).values()), script.sessions) == ({Status.PASS}, 2)


def test_eager_that_ran_out_of_memory_beside_others_is_opened_again_at_its_batch_size() -> None:
    script = Script({(1, "open", ""): failed(Status.EAGER_1ST_RUN_OOM)})
    run_records = run(script, gate=Noting(script, crowded=1), batch_size=8)
    assert (set(statuses(run_records).values()), known(run_records[0].model).batch_size) == ({Status.PASS}, 8)


def test_a_latency_beside_other_jobs_has_a_star_and_a_caveat() -> None:
    job = make_job()
    beside = make_record(job, "inductor", compilation_s=5.0, metrics={"prepared_beside": 3})
    alone = make_record(job, "aot_eager", compilation_s=5.0)
    summary = summarize([beside, alone])
    column = columns()["compilation_latency_s"]
    texts = {comparison.compiler: column.cell(comparison) for comparison in summary.comparisons}
    assert texts["inductor"] == f"{texts['aot_eager']}*"
    (said,) = [caveat for caveat in summary.caveats if "star" in caveat]
    assert "up to 3 other jobs" in said
    assert not any("star" in caveat for caveat in summarize([alone]).caveats)
