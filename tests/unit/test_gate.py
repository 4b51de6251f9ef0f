"""``--prepare-ahead``: jobs prepare side by side, and each is timed while nothing else runs."""

import collections
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.schema import CompilerOptions, Extras, Job, Record, Status
from harness.worker.status_page import Activity
from runner.analysis.columns import columns
from runner.analysis.derive import summarize
from runner.engine.executors import Doing, Stop, Work
from runner.engine.executors.ahead import GROWTH, LEAST_BYTES, FreeMemory, crowded, jobs_ahead
from runner.engine.executors.local import Lanes, Tell
from runner.engine.gate import DeviceGate, Seat, State, sessions
from tests.factories import Patch, known, make_job, make_record
from tests.unit.test_execute import Script, failed, lost, run, statuses
from tests.unit.test_executors import PATIENCE_S, work

SHORT_S = 0.002
CHECK_S = 0.1  # five times as often as a run looks
GB = 10**9
JOBS = [work(f"m{number}", "cpu", ("a",)) for number in range(40)]
NAMES = [work.job.case.name for work in JOBS]


@pytest.fixture(autouse=True)
def often(monkeypatch: Patch) -> None:
    monkeypatch.setattr("runner.engine.gate.CHECK_S", CHECK_S)


class World:
    """Made-up jobs on one device, of which at most ``most`` may be open. Notes the ``faults`` of the gate.

    The jobs ``large`` run out of memory beside others; ``broken`` lose their worker when they are timed.
    """

    def __init__(
        self, ahead: int, most: int = 0, large: Sequence[str] = (), broken: Sequence[str] = ()
    ) -> None:
        self.ahead, self.most, self.large, self.broken = ahead, most or sessions(ahead), large, broken
        self.lock = threading.Lock()
        self.open: dict[str, str] = {}  # job -> what it does
        self.alone: set[str] = set()
        self.timed: list[str] = []
        self.faults: list[str] = []
        self.random = random.Random(7)

    def measure(self, task: Work, tell: Tell, stop: Stop, gate: Seat) -> Iterator[Record]:
        name = task.job.case.name
        self.prepares(name, gate)
        if name in self.large and gate.asks_to_be_alone():
            self.does(name, "ends")
            self.alone.add(name)
            self.prepares(name, gate)
        self.is_timed(name, gate)
        if name in self.broken:
            self.does(name, "ends")
            self.prepares(name, gate)
            self.is_timed(name, gate)
        self.does(name, "ends")
        yield Record(job=task.job, candidate="a", status=Status.PASS, metrics={"beside": gate.beside})

    def prepares(self, name: str, gate: Seat) -> None:
        gate.wait_to_prepare()
        self.does(name, "prepares")
        time.sleep(self.random.random() * SHORT_S)
        self.does(name, "waits")

    def is_timed(self, name: str, gate: Seat) -> None:
        gate.wait_to_be_timed()
        self.timed.append(name)
        self.does(name, "is timed")
        time.sleep(SHORT_S / 4)

    def does(self, name: str, what: str) -> None:
        with self.lock:
            self.open[name] = what
            if what == "ends":
                del self.open[name]
            count = collections.Counter(self.open.values())
            beside_timed = count["is timed"] and (count["is timed"] > 1 or count["prepares"])
            beside_alone = len(self.open) > 1 and self.alone & self.open.keys()
            if beside_timed or beside_alone or len(self.open) > self.most or count["prepares"] > self.ahead:
                self.faults.append(f"{name} {what}: {self.open}")

    def run(self, jobs: Sequence[Work], room: Callable[[int], bool] = lambda _: True) -> list[Record]:
        events = Lanes(self.measure, lambda: False, ahead=self.ahead, room=room).run([jobs])
        return [event for event in events if isinstance(event, Record)]


@pytest.mark.parametrize("ahead", [1, 2, 3, 4, 8])
def test_every_job_is_timed_once_in_order_while_nothing_else_runs(monkeypatch: Patch, ahead: int) -> None:
    began: list[int] = []
    enter = Seat.enter

    def noting(seat: Seat, state: State) -> None:
        began.extend([seat.number] * (state is State.PREPARES))
        enter(seat, state)

    monkeypatch.setattr(Seat, "enter", noting)
    world = World(ahead)
    records = world.run(JOBS)
    assert (world.faults, began) == ([], [*range(len(JOBS))])
    assert world.timed == NAMES == sorted((r.job.case.name for r in records), key=NAMES.index)


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
        def prepares(self, name: str, gate: Seat) -> None:
            super().prepares(name, gate)
            both.wait()

    assert [record.metrics["beside"] for record in Meeting(2).run(JOBS[:8])] == [1] * 8


@pytest.mark.parametrize("most", [1, 3])
def test_memory_limits_how_many_are_open(most: int) -> None:
    world = World(4, most)
    world.run(JOBS, room=lambda opened: opened < most)
    assert (world.faults, len(world.timed)) == ([], len(JOBS))


def test_a_job_that_ran_out_of_memory_or_was_lost_waits_again_and_the_first_has_the_device_for_itself() -> (
    None
):
    world = World(3, large=("m1", "m2", "m9", "m30"), broken=("m0", "m2", "m17", "m39"))
    world.run(JOBS)
    assert world.alone  # those that had others beside them
    assert (world.faults, sorted(world.timed)) == ([], sorted([*NAMES, *world.broken]))


def test_a_neighbor_that_has_ended_since_counts_too() -> None:
    """It may have held the memory for which this job was killed."""
    gate = DeviceGate(ahead=2)
    first, second, third = seats = [gate.seat() for _ in range(3)]
    for seat in seats[:2]:
        seat.wait_to_prepare()
    second.leave()
    assert (first.asks_to_be_alone(), first.asks_to_be_alone()) == (True, False)
    first.wait_to_prepare()
    assert not third.may_prepare()
    first.begin(3)  # another job
    third.wait_to_prepare()
    assert first.may_prepare()
    assert not DeviceGate(ahead=2).seat().asks_to_be_alone()


def test_no_job_is_timed_while_another_can_begin() -> None:
    gate = DeviceGate(2)
    first, second = gate.seat(), gate.seat()
    ends = [second.wait_to_prepare, second.leave]
    gate.check = lambda: ends.pop(0)()
    second.begin(1)
    first.wait_to_prepare()
    # the seconds of two looks: at one that can begin, and at one that prepares
    assert 1.8 * CHECK_S < first.wait_to_be_timed() < PATIENCE_S
    assert not ends


def test_an_abandoned_run_ends_the_jobs_that_wait() -> None:
    abandoned = threading.Event()

    def measure(task: Work, tell: Tell, stop: Stop, gate: Seat) -> Iterator[Record]:
        gate.wait_to_prepare()
        if task.job.case.name == "m1":
            abandoned.wait(PATIENCE_S)  # so m0 can never be timed
        tell(Doing(job=task.job, activity=Activity(phase="prepared")))
        gate.wait_to_be_timed()
        yield Record(job=task.job, candidate="a", status=Status.PASS)

    before = threading.active_count()
    running = Lanes(measure, lambda: False, abandoned, ahead=2).run([JOBS[:2]])
    while not isinstance(next(running), Doing):
        pass
    running.close()
    assert threading.active_count() == before


def test_an_error_in_a_job_does_not_leave_the_others_waiting() -> None:
    class Broken(World):
        def is_timed(self, name: str, gate: Seat) -> None:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        Broken(3).run(JOBS)


def test_jobs_that_wait_leave_the_processor_to_the_job_that_is_timed() -> None:
    """They once woke each other without end."""
    looks: list[float] = []
    gate = DeviceGate(3, check=lambda: looks.append(time.monotonic()))
    seats = [gate.seat() for _ in range(4)]

    def job(seat: Seat) -> None:
        seat.wait_to_prepare()
        seat.wait_to_be_timed()
        if seat is seats[0]:
            time.sleep(3 * CHECK_S)
        seat.leave()

    began = time.monotonic()
    threads = [threading.Thread(target=job, args=(seat,)) for seat in seats]
    for number, (seat, thread) in enumerate(zip(seats, threads, strict=True)):
        seat.begin(number)
        thread.start()
    for thread in threads:
        thread.join()
    a_seat = (time.monotonic() - began) / CHECK_S + 1
    others = 4 * len(seats)  # wakes by the others' changes
    assert len(looks) <= len(seats) * (a_seat + others)


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
        super().__init__(DeviceGate(), beside=beside)
        self.script = script
        self.crowded = crowded

    def note(self, text: str) -> None:
        self.script.calls.append((self.script.sessions, text))

    def wait_to_prepare(self) -> None:
        self.note("prepares")

    def wait_to_be_timed(self) -> float:
        self.note("is timed")
        return 1000.0

    def asks_to_be_alone(self) -> bool:
        self.crowded -= 1
        return self.crowded >= 0


def test_a_job_passes_the_gate_before_it_compiles_and_before_it_is_timed() -> None:
    script = Script()
    run_records = run(script, gate=Noting(script), timeout_s=500.0)
    calls = [call for _, call in script.calls]
    gates = "prepares, open, prepare a, prepare c, prepare b, is timed, warm_up, measure, finish, conclude"
    assert ", ".join(calls) == gates
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
