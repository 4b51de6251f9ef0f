"""Jobs as tasks of a made-up Ray: room for them, lost tasks, exactly one record for each candidate."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.codec import from_json, to_json
from harness.schema import Job, Record, Status
from runner.cli.commands import job_command
from runner.engine import JobContext
from runner.engine.executors import Event, JobEnded, Started, Work
from runner.engine.executors.ray_cluster import (
    ATTEMPTS,
    LONGEST_OUTPUT,
    Node,
    RayExecutor,
    measured,
    resources,
    worker_base,
)
from runner.engine.experiments import Attempt
from tests.command_line import refused
from tests.factories import Capture, Patch, known
from tests.unit.test_executors import Folder, record, recorded, work


class LostError(Exception):
    """Ray's error."""


Script = Callable[[dict[str, Any]], Sequence[object]]


class Stream:
    """The messages of one task; an exception is raised in its place."""

    def __init__(self, order: dict[str, Any], messages: Sequence[object]) -> None:
        self.order = order
        self.messages = deque([{"node": "n1"}, *messages])
        self.canceled = False

    def __next__(self) -> object:
        if not self.messages:
            raise StopIteration
        return self.messages.popleft()


class Ray:
    """As much of Ray as the executor uses. ``script`` says what a task answers to its order."""

    exceptions = SimpleNamespace(RayError=LostError)

    def __init__(self, script: Script) -> None:
        self.script = script
        self.streams: list[Stream] = []
        self.asked: list[dict[str, Any]] = []

    def options(self, **asked: Any) -> SimpleNamespace:
        self.asked.append(asked)
        return SimpleNamespace(remote=self.begin)

    def remote(self, _: object) -> Ray:
        return self

    def begin(self, text: str) -> Stream:
        order = json.loads(text)
        self.streams.append(Stream(order, self.script(order)))
        return self.streams[-1]

    @staticmethod
    def wait(streams: Sequence[Stream], **_: object) -> tuple[Sequence[Stream], Sequence[Stream]]:
        return streams[:1], streams[1:]

    @staticmethod
    def get(message: object) -> str:
        if isinstance(message, Exception):
            raise message
        return json.dumps(message)

    @staticmethod
    def cancel(stream: Stream, *, force: bool = False) -> None:
        stream.canceled = True
        stream.messages = deque([LostError("canceled")])

    @staticmethod
    def nodes() -> list[dict[str, Any]]:
        node = {"NodeID": "n1", "NodeManagerHostname": "host", "NodeManagerAddress": "10.0.0.1"}
        return [{**node, "Resources": {"CPU": 4.0, "GPU": 2.0}, "Alive": True}]


Run = Callable[[Script, Sequence[Work]], tuple[Ray, list[Event]]]


@pytest.fixture
def run(monkeypatch: Patch, tmp_path: Path) -> Run:
    def on_ray(script: Script, jobs: Sequence[Work]) -> tuple[Ray, list[Event]]:
        ray = Ray(script)
        monkeypatch.setitem(sys.modules, "ray", ray)
        return ray, list(RayExecutor(job_command).run(jobs, Folder(tmp_path), lambda: False))

    return on_ray


def answers(order: dict[str, Any], most: int = 9) -> list[Any]:
    job = from_json(Job, order["job"])
    task = Work(attempt=Attempt(job, tuple(order["candidates"])))
    texts = [to_json(record(task, candidate)) for candidate in order["candidates"]]
    return [{"record": text, "cpus": 4.0, "output": "printed\n"} for text in texts][:most]


JOBS = [work(f"m{number}", "cpu") for number in range(3)]
ALL = sorted((work.job.case.name, candidate) for work in JOBS for candidate in work.attempt.candidates)


def test_every_job_is_one_task_and_every_record_is_there_once(run: Run, tmp_path: Path) -> None:
    ray, events = run(lambda order: [*answers(order), *answers(order)], JOBS)
    assert (recorded(events), len(ray.streams)) == (ALL, 3)
    for kind in (Started, JobEnded):
        assert [event.job.case.name for event in events if isinstance(event, kind)] == ["m0", "m1", "m2"]
    assert (ray.asked[0]["num_cpus"], ray.asked[0]["max_retries"]) == (4.0, 0)
    assert Folder(tmp_path).open_case(JOBS[0].job).read_text().startswith("printed\n")
    (first, *_) = (event for event in events if isinstance(event, Record))
    assert (first.environment["node"], first.notes) == ("host 10.0.0.1 n1", ())


def test_files_of_a_job_are_kept_in_its_folder(run: Run, tmp_path: Path) -> None:
    files = {"repro-a.py": "code", "../../out": "elsewhere"}
    run(lambda order: [*answers(order), {"output": "", "files": files}], JOBS[:1])
    folder = Folder(tmp_path).open_case(JOBS[0].job).parent
    assert ((folder / "repro-a.py").read_text(), (folder / "out").read_text()) == ("code", "elsewhere")


def test_a_lost_job_goes_on_with_the_candidates_that_have_no_record(run: Run, capsys: Capture) -> None:
    def script(order: dict[str, Any]) -> list[object]:
        return answers(order) if order["candidates"] == ["b"] else [*answers(order, 1), LostError("gone")]

    ray, events = run(script, JOBS[:1])
    assert recorded(events) == [("m0", "a"), ("m0", "b")]
    assert [stream.order["candidates"] for stream in ray.streams] == [["a", "b"], ["b"]]
    second = [event for event in events if isinstance(event, Record)][1]
    assert second.notes == ("measured again after host 10.0.0.1 n1 was lost",)
    assert "host 10.0.0.1 n1 was lost (LostError: gone)" in capsys.readouterr().err
    assert sum(isinstance(event, Started) for event in events) == 1


@pytest.mark.parametrize("end", [[LostError("gone")], []])
def test_a_job_that_is_lost_again_and_again_has_failure_records(run: Run, end: list[object]) -> None:
    ray, events = run(lambda _: end, JOBS[:1])
    run_records = [event for event in events if isinstance(event, Record)]
    assert {r.candidate: r.status for r in run_records} == dict.fromkeys("ab", Status.INFRA_ERROR)
    assert len(ray.streams) == ATTEMPTS
    message = known(run_records[0].failure).message
    assert message.startswith("lost 3 times in a row, the last time on host 10.0.0.1 n1: ")
    assert isinstance(events[-1], JobEnded)


def test_a_stop_cancels_all_tasks_and_makes_no_record(monkeypatch: Patch, tmp_path: Path) -> None:
    ray = Ray(answers)
    monkeypatch.setitem(sys.modules, "ray", ray)
    pressed, events = list[bool](), list[Event]()
    for event in RayExecutor(job_command).run(JOBS, Folder(tmp_path), lambda: bool(pressed)):
        events.append(event)
        if isinstance(event, Record):
            pressed.append(True)
    assert recorded(events) == [("m0", "a")]
    assert all(stream.canceled for stream in ray.streams)
    assert sum(isinstance(event, JobEnded) for event in events) == 3


def test_jobs_that_share_a_node_say_so(run: Run) -> None:
    def script(order: dict[str, Any]) -> list[object]:
        return [{**answer, "cpus": 1.0} for answer in answers(order)]

    _, events = run(script, JOBS[:1])
    (first, *_) = (event for event in events if isinstance(event, Record))
    assert first.notes[0].startswith("had 1 of the node's 4 cores; other jobs on the node may")
    assert (first.environment["node_cpus"], first.environment["job_cpus"]) == (4.0, 1.0)


SMALL = Node(id="1", name="small", cpus=4, gpus=0)
LARGE = Node(id="2", name="large", cpus=16, gpus=4)


def asking(device: str = "cpu", threads: int | None = None) -> Job:
    job = work("m", device).job
    return replace(job, protocol=replace(job.protocol, threads=threads))


@pytest.mark.parametrize(
    ("job", "expected"), [*((asking(), (16.0, 0)), (asking(threads=2), (2.0, 0)), (asking("cuda"), (4.0, 1)))]
)
def test_what_a_job_asks_for(job: Job, expected: tuple[float, int]) -> None:
    assert resources(job, [SMALL, LARGE]) == expected


@pytest.mark.parametrize(
    ("job", "nodes", "sentence"),
    [
        (asking("cuda:1"), [LARGE], "--devices: with --executor=ray the cluster chooses the GPU; write cuda"),
        (asking("cuda"), [SMALL], "--devices: no node of the Ray cluster has 1 GPU"),
        (asking(threads=8), [SMALL], "--threads: no node of the Ray cluster has 8 cores; the largest has 4"),
        (asking(), [], "--executor=ray: no node of the Ray cluster offers a core"),
    ],
)
def test_a_job_without_room_is_a_sentence(job: Job, nodes: list[Node], sentence: str) -> None:
    with refused("", sentence):
        resources(job, nodes)


# -- on a node ---------------------------------------------------------------------------
def test_a_task_sends_where_it_is_then_its_records_with_what_was_printed(monkeypatch: Patch) -> None:
    contexts: list[JobContext] = []

    def measure(
        attempt: Attempt, before: Sequence[Record], context: JobContext, path: Path, _: object
    ) -> Iterator[Record]:
        assert (attempt.process, before) == (1, ())
        contexts.append(context)
        for candidate in context.candidates:
            (path.parent / f"parity-{candidate}.csv").write_text("call,tensor\n")
            with path.open("a") as log:
                log.write("x" * (LONGEST_OUTPUT + 5) if candidate == "b" else "printed\n")
            yield record(Work(attempt=attempt), candidate)

    context = SimpleNamespace(get_node_id=lambda: "n1", get_assigned_resources=lambda: {"CPU": 2.0})
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=lambda: context))
    monkeypatch.setattr("runner.engine.executors.ray_cluster.measure", measure)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    job = JOBS[0].job
    order = {"job": to_json(job), "candidates": ["a", "b"], "log": "cases/m0/output.log", "threads": None}
    order |= {"reproduce": {"a": "again a"}, "path": "/here"}
    order |= {"attempt": {"process": 1, "experiment": "", "round": 0}}
    hello, *messages, last = map(json.loads, measured(json.dumps(order)))
    assert hello["node"] == "n1"
    assert hello["output"].startswith("# on ")
    assert [message["record"]["candidate"] for message in messages] == ["a", "b"]
    assert messages[0]["record"]["environment"] == {"env.CUDA_VISIBLE_DEVICES": "1"}
    assert (messages[0]["cpus"], messages[0]["output"]) == (2.0, "printed\n")
    assert "[5 characters left out]" in messages[1]["output"]
    files = dict.fromkeys(("parity-a.csv", "parity-b.csv"), "call,tensor\n")
    assert last == {"output": "", "files": files, "ended": True}
    (job_context,) = contexts
    assert job_context.place.logs == {"": "cases/m0/output.log"}
    assert job_context.reproduce(job, ("a",)) == "again a"


@pytest.mark.parametrize(("threads", "expected"), [(None, {}), ("3", {"OMP_NUM_THREADS": "3"})])
def test_the_threads_are_those_of_the_run_not_of_ray(threads: str | None, expected: dict[str, str]) -> None:
    base = worker_base({"OMP_NUM_THREADS": "1", "PYTHONPATH": "/node"}, threads, "/run")
    assert base == {"PYTHONPATH": "/run:/node", **expected}
