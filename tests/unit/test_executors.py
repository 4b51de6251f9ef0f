"""Jobs on this machine's devices: side by side where they may be, each once, and nothing lost on the way."""

import dataclasses
import io
import re
import sys
import threading
import time
import types
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from harness.schema import Job, Protocol, Record, Status
from harness.worker.status_page import Activity
from runner.cli.commands import job_command
from runner.cli.measuring import measure_missing, opened
from runner.cli.progress import BarView, PlainView
from runner.engine.executors import Cases, Doing, Event, Events, JobEnded, Started, Stop, Timed, Work
from runner.engine.executors.local import JobRecords, LocalExecutor, Tell
from runner.engine.experiments import Attempt
from runner.engine.gate import Seat
from runner.errors import UsageError
from runner.plan.config import RunConfig, Where
from runner.plan.jobs import Catalog, plan
from runner.store.run_folder import RunFolder
from tests.command_line import parsed
from tests.factories import Patch, make_job, make_record

PATIENCE_S = 300.0  # of a test that would otherwise hang


def work(name: str, device: str = "cuda:0", candidates: tuple[str, ...] = ("a", "b")) -> Work:
    job = make_job(name, device=device, candidates=candidates, protocol=Protocol(repeat=6))
    return Work(attempt=Attempt(job, candidates))


def record(task: Work, candidate: str) -> Record:
    return Record(job=task.job, candidate=candidate, status=Status.PASS)


class Folder:
    def __init__(self, path: Path = Path()) -> None:
        self.path = path

    def open_case(self, job: Job) -> Path:
        return self.path / f"{job.key}.log"

    def relative(self, path: Path) -> str:
        return path.name


class Devices:
    """Fake workers. Knows which devices are at work, and minds two jobs on one or two kinds together."""

    def __init__(self) -> None:
        self.busy: set[str] = set()
        self.most = 0
        self.closed: list[str] = []
        self.lock = threading.Lock()

    def measure(self, task: Work, tell: Tell, stop: Stop, gate: Seat) -> Iterator[Record]:
        device = task.job.device
        with self.lock:
            assert device not in self.busy, "two jobs on one device"
            self.busy.add(device)
            assert len({name.split(":")[0] for name in self.busy}) == 1, "two kinds at work"
            self.most = max(self.most, len(self.busy))
        try:
            yield from self.job(task, tell, stop, gate)
        finally:
            with self.lock:
                self.busy.remove(device)
                self.closed.append(task.job.case.name)

    def job(self, task: Work, tell: Tell, stop: Stop, gate: Seat) -> Iterator[Record]:
        for candidate in task.attempt.candidates:
            if stop():
                return
            tell(Doing(job=task.job, activity=Activity(phase="prepare", variant=candidate)))
            time.sleep(0.01)
            yield record(task, candidate)


def run(measure: JobRecords, planned: Sequence[Work], stop: Stop = lambda: False) -> list[Event]:
    return list(LocalExecutor(job_command, measure=measure).run(planned, Folder(), stop))


def recorded(events: Sequence[Event]) -> list[tuple[str, str]]:
    return sorted((e.job.case.name, e.candidate) for e in events if isinstance(e, Record))


SIX = [work(f"m{number}", f"cuda:{number % 2}") for number in range(6)]
ALL = sorted((work.job.case.name, candidate) for work in SIX for candidate in work.attempt.candidates)


class Meeting(Devices):
    """A job begins when one of the other lane is under way, too."""

    def __init__(self) -> None:
        super().__init__()
        self.both = threading.Barrier(2, timeout=PATIENCE_S)

    def job(self, task: Work, tell: Tell, stop: Stop, gate: Seat) -> Iterator[Record]:
        self.both.wait()
        yield from super().job(task, tell, stop, gate)


def test_lanes_overlap_each_device_has_one_job_at_a_time_and_every_record_arrives_once() -> None:
    devices = Meeting()
    events = run(devices.measure, SIX)
    assert (devices.most, recorded(events)) == (2, ALL)
    for kind in (Started, JobEnded):
        assert sorted(e.job.case.name for e in events if isinstance(e, kind)) == [f"m{n}" for n in range(6)]


def test_different_kinds_of_devices_follow_each_other() -> None:
    devices = Devices()
    mixed = [work("a", "cpu"), work("b", "cuda:0"), work("c", "cuda:1"), work("d", "cpu")]
    events = run(devices.measure, mixed)
    assert [e.job.device for e in events if isinstance(e, JobEnded)][:2] == ["cpu", "cpu"]
    assert len(recorded(events)) == 8


def test_a_lane_goes_on_only_when_its_record_is_written() -> None:
    written: list[Record] = []

    def measure(task: Work, tell: Tell, stop: Stop, gate: Seat) -> Iterator[Record]:
        for number, candidate in enumerate(task.attempt.candidates):
            assert len(written) == number
            yield record(task, candidate)

    for event in LocalExecutor(job_command, measure=measure).run([work("m")], Folder(), lambda: False):
        if isinstance(event, Record):
            time.sleep(0.05)  # a slow disk
            written.append(event)
    assert len(written) == 2


def test_a_stop_ends_both_lanes_after_their_current_rounds() -> None:
    pressed = threading.Event()
    events = []
    for event in LocalExecutor(job_command, measure=Meeting().measure).run(SIX, Folder(), pressed.is_set):
        events.append(event)
        if isinstance(event, Record):
            pressed.set()
    started = {e.job.case.name for e in events if isinstance(e, Started)}
    assert started == {"m0", "m1"} == {e.job.case.name for e in events if isinstance(e, JobEnded)}
    assert 1 <= len(recorded(events)) <= 4


def test_an_error_in_a_lane_stops_the_other_and_is_raised_after_its_records() -> None:
    class Broken(Meeting):
        def job(self, task: Work, tell: Tell, stop: Stop, gate: Seat) -> Iterator[Record]:
            self.both.wait()
            if task.job.device == "cuda:1":
                raise OSError("no space left")
            while not stop():
                time.sleep(0.01)
            yield record(task, "a")

    devices = Broken()
    events: list[Event] = []
    with pytest.raises(OSError, match="no space left"):
        events.extend(LocalExecutor(job_command, measure=devices.measure).run(SIX, Folder(), lambda: False))
    assert (sorted(devices.closed), recorded(events)) == (["m0", "m1"], [("m0", "a")])


def test_a_lane_that_cannot_start_ends_the_others(monkeypatch: Patch) -> None:
    starts, start = iter((True, False)), threading.Thread.start

    def start_once(thread: threading.Thread) -> None:
        if not next(starts):
            raise RuntimeError("can't start new thread")
        start(thread)

    before = threading.active_count()
    monkeypatch.setattr(threading.Thread, "start", start_once)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run(Devices().measure, SIX)
    assert threading.active_count() == before


def test_whoever_stops_listening_ends_all_workers() -> None:
    class Endless(Devices):
        def job(self, task: Work, tell: Tell, stop: Stop, gate: Seat) -> Iterator[Record]:
            while True:
                tell(Doing(job=task.job, activity=Activity(phase="measure")))
                time.sleep(0.01)
            yield record(task, "a")

    devices = Endless()
    before = threading.active_count()
    with closing(
        LocalExecutor(job_command, measure=devices.measure).run(SIX, Folder(), lambda: False)
    ) as events:
        while devices.most < 2:
            next(events)
    assert (sorted(devices.closed), threading.active_count()) == (["m0", "m1"], before)


# -- the plan -------------------------------------------------------------------
class Silent:
    """Yields no record for its work."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def run(self, work: Sequence[Work], cases: Cases, stop: Stop) -> Events:
        self.asked += [item.job.case.name for item in work]
        yield from ()


def test_work_that_yields_nothing_is_asked_for_once(tmp_path: Path) -> None:
    jobs, executor = [make_job("a")], Silent()
    folder = RunFolder.create(tmp_path / "run", jobs, [])
    with folder.claimed():
        ended = measure_missing(folder, jobs, Console(file=io.StringIO()), executor)
    assert executor.asked == ["a"]
    assert not ended  # no time limit ended it


def planned(*devices: str, names: str = "abcde") -> tuple[Job, ...]:
    config = parsed(["--training", f"--devices={','.join(devices)}", "--compilers=eager"])[1].config
    assert isinstance(config, RunConfig)
    cases = tuple(dataclasses.replace(work(name).job.case, suite="tiny_gpt") for name in names)
    return plan(config, Catalog(cases=lambda *_: cases, find=lambda *_: {}))


def test_devices_of_a_kind_share_the_plan_and_each_kind_has_it_whole() -> None:
    jobs = planned("cuda:0", "cuda:1")
    assert [job.case.name for job in jobs] == list("abcde")
    shares = [sum(job.device == device for job in jobs) for device in ("cuda:0", "cuda:1")]
    assert sorted(shares) == [2, 3]
    assert jobs == planned("cuda:0", "cuda:1")
    jobs = planned("cpu", "cuda", "cuda:2")
    assert [job.case.name for job in jobs if job.device == "cpu"] == list("abcde")
    assert [job.case.name for job in jobs if job.device != "cpu"] == list("abcde")
    assert {job.device for job in jobs} == {"cpu", "cuda", "cuda:2"}
    assert [job.device for job in planned("cuda:1")] == ["cuda:1"] * 5


# -- flags ------------------------------------------------------------------------
def test_the_executor_is_asked_for_in_a_new_run_and_in_a_resumed_one() -> None:
    for first in ("--training", "--resume=somewhere"):
        _, asked = parsed([first, "--executor=ray", "--ray-address=h:1"])
        assert asked.where == Where(executor="ray", ray_address="h:1")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("not installed", "ray is not installed; pip install"),
        (None, r"^--executor=ray: no cluster can be started \(the node timed out\); .*ray start --head"),
        ("auto", r"^--ray-address: auto cannot be used \(the node timed out\)"),
    ],
)
def test_without_ray_or_a_cluster_is_a_sentence(monkeypatch: Patch, address: str | None, says: str) -> None:
    def init(*_: object, **__: object) -> None:
        raise Exception("the node\ntimed out")  # noqa: TRY002 - as Ray does

    ended, there = list[bool](), address != "not installed"
    ray = types.SimpleNamespace(init=init, shutdown=lambda: ended.append(True))
    monkeypatch.setitem(sys.modules, "ray", ray if there else None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    where = Where(executor="ray", ray_address=address)
    with pytest.raises(UsageError, match=says), opened(where, [work("m", "cpu").job]):
        pass
    assert ended == [True] * there


def test_the_address_of_a_client_of_ray_is_refused(monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace())
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    where = Where(executor="ray", ray_address="ray://h:10001")
    says = "^--ray-address: give the cluster's own address, such as 10.0.0.1:6379, not ray://$"
    with pytest.raises(UsageError, match=says), opened(where, [work("m", "cpu").job]):
        pass


# -- what a person sees -------------------------------------------------------------
def test_lines_name_the_job_where_several_are_under_way() -> None:
    text = io.StringIO()
    view = PlainView(Console(file=text, width=200), 2)
    first, second = SIX[:2]
    for event in (Started(job=first.job), record(first, "a"), Started(job=second.job), record(first, "b")):
        view.event(event)
    view.event(JobEnded(job=first.job))
    view.event(record(second, "a"))
    assert text.getvalue().splitlines() == [
        *("[1/2] m0 training float32 cuda:0", "    a: pass", "[2/2] m1 training float32 cuda:1"),
        *("    m0 training float32 cuda:0  b: pass", "    a: pass"),
    ]


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (Status.PASS, r"inductor 1\.\d+x \[1\.\d+, 1\.\d+\] faster, pass"),
        (Status.FAIL_ACCURACY, r"inductor: fail_accuracy"),
    ],
)
def test_a_verdict_is_printed_as_it_comes(status: Status, line: str) -> None:
    texts = io.StringIO(), io.StringIO()
    log, terminal = (Console(file=text, width=200) for text in texts)
    for view in (PlainView(log, 1), BarView(Progress(console=terminal), 1)):
        view.event(make_record(make_job(), status=status, speedup=1.31, rounds=30))
    assert re.fullmatch(f"    {line}\n", texts[0].getvalue())
    assert re.fullmatch(f"model training float32: {line}\n", texts[1].getvalue())


def test_a_log_names_the_phase_where_nothing_else_was_printed_for_long() -> None:
    text, now = io.StringIO(), iter((0, 1, 5, 35, 35, 40, 70, 70))
    view = PlainView(Console(file=text, width=200), 1, clock=lambda: float(next(now)))
    view.event(Started(job=SIX[0].job))
    for phase, variant in (("build", ""), ("compile", "a"), ("check", "a"), ("measure", "")):
        view.event(Doing(job=SIX[0].job, activity=Activity(phase=phase, variant=variant, rounds=3)))
    assert text.getvalue().splitlines()[1:] == ["    compile a ...", "    round 3 ..."]


def test_the_bar_shows_one_job_with_estimates_or_the_first_few() -> None:
    progress = Progress(console=Console(file=io.StringIO()))
    view = BarView(progress, len(SIX))
    view.event(Started(job=SIX[0].job))
    view.event(Timed(job=SIX[0].job, done=6, pairs={"a": ([2.0] * 6, [1.0] * 6)}))
    assert progress.tasks[0].description == "m0 training float32  round 6  a 2.00x"
    for task in SIX[1:5]:
        view.event(Doing(job=task.job, activity=Activity(phase="prepare", variant="b")))
    two = "m1 training float32  prepare b | m2 training float32  prepare b"
    shown = f"m0 training float32  round 6 | {two} | 2 more"
    assert progress.tasks[0].description == shown
    for task in SIX[:4]:
        view.event(JobEnded(job=task.job))
    view.event(Doing(job=SIX[4].job, activity=Activity(phase="measure", rounds=3)))
    assert (progress.tasks[0].description, progress.tasks[0].completed) == ("m4 training float32  round 3", 4)
