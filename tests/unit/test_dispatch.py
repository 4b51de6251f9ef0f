"""Jobs on a made up cluster: room for them, lost nodes, exactly one record for each candidate."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.codec import from_json, to_json
from harness.schema import Job, Record, Status
from harness.worker.status_page import Activity
from runner.cli.commands import job_command
from runner.engine import Gate
from runner.engine.executors import Ended, Event, Started, Stop, Work
from runner.engine.executors.dispatch import (
    ATTEMPTS,
    Dispatcher,
    Node,
    NodeSession,
    SessionLost,
    Slot,
    check_devices,
    check_room,
    slots,
)
from runner.engine.executors.local import Watch
from runner.engine.executors.node import NodeJob, node_environment
from runner.errors import UsageError
from tests.unit.test_executors import Folder, record, recorded, work

Message = dict[str, Any] | SessionLost | None
HELLO: dict[str, Any] = {"activity": ["start", "", 0], "output": "# on x\n"}


def node(name: str, cpus: float = 4, gpus: int = 0) -> Node:
    return Node(id=name, name=name, cpus=cpus, gpus=gpus)


class Session:
    """Says what its script says, one message a call."""

    def __init__(self, messages: Sequence[Message], slot: Slot) -> None:
        self.messages = deque(messages)
        self.slot = slot
        self.told: list[str] = []

    def receive(self) -> dict[str, Any] | None:
        message = self.messages.popleft()
        if isinstance(message, SessionLost):
            raise message
        return message

    def stop(self) -> None:
        self.told.append("stop")
        self.messages = deque([None])

    def abandon(self) -> None:
        self.told.append("abandon")

    def kill(self) -> None:
        self.told.append("kill")


Script = Callable[[Work, Slot], Sequence[Message]]


class Cluster:
    def __init__(self, nodes: Sequence[Node], script: Script) -> None:
        self.living = list(nodes)
        self.script = script
        self.sessions: list[Session] = []
        self.orders: list[tuple[str, str, tuple[str, ...]]] = []  # job, node, candidates
        self.together = 0

    def nodes(self) -> Sequence[Node]:
        return self.living

    def start(self, order: Mapping[str, Any], slot: Slot) -> NodeSession:
        one = Work(job=from_json(Job, order["job"]), candidates=tuple(order["candidates"]))
        assert order["reproduce"] == {name: job_command(one.job, (name,)) for name in one.candidates}
        self.orders.append((one.job.case.name, slot.node.id, one.candidates))
        self.sessions.append(Session(self.script(one, slot), slot))
        return self.sessions[-1]

    def ready(self, sessions: Sequence[NodeSession], timeout_s: float) -> Collection[NodeSession]:
        self.together = max(self.together, len(sessions))
        places = [(s.slot.node.id, s.slot.index) for s in sessions if isinstance(s, Session)]
        assert len(set(places)) == len(places), "two jobs in one place"
        return [one for one in sessions if isinstance(one, Session) and one.messages][:1]


def healthy(one: Work, slot: Slot) -> Sequence[Message]:
    return [HELLO, *({"record": to_json(record(one, c)), "output": f"{c}\n"} for c in one.candidates), None]


def run(
    cluster: Cluster, planned: Sequence[Work], path: Path, stop: Stop = lambda: False
) -> tuple[list[Event], Dispatcher]:
    ticks = iter(range(10_000))
    dispatcher = Dispatcher(
        cluster, job_command, clock=lambda: float(next(ticks)), sleep=lambda seconds: None
    )
    return list(dispatcher.run(planned, Folder(path), stop)), dispatcher


FIVE = [work(f"m{n}", "cpu") for n in range(5)]
ALL = sorted((one.job.case.name, candidate) for one in FIVE for candidate in one.candidates)


def test_every_record_once_on_nodes_side_by_side_with_its_node_and_its_output(tmp_path: Path) -> None:
    cluster = Cluster([node("x"), node("y")], healthy)
    events, _ = run(cluster, FIVE, tmp_path)
    assert recorded(events) == ALL
    assert cluster.together == 2
    for kind in (Started, Ended):
        assert len([e for e in events if isinstance(e, kind)]) == 5
    one = next(e for e in events if isinstance(e, Record))
    assert one.environment == {"node": "x", "node_cpus": 4, "job_cpus": 4.0}
    assert one.notes == ()
    assert (tmp_path / f"{one.job.key}.log").read_text() == "# on x\na\nb\n"
    assert all(session.told == ["kill"] for session in cluster.sessions)


def test_a_lost_nodes_job_goes_on_elsewhere_without_what_is_recorded(tmp_path: Path) -> None:
    def script(one: Work, slot: Slot) -> Sequence[Message]:
        if slot.node.id == "x":
            return [HELLO, {"record": to_json(record(one, "a"))}, SessionLost("node died")]
        return healthy(one, slot)

    cluster = Cluster([node("x"), node("y")], script)
    events, _ = run(cluster, FIVE, tmp_path)
    assert recorded(events) == ALL
    assert ("m0", "x", ("a", "b")) in cluster.orders
    assert ("m0", "y", ("b",)) in cluster.orders
    assert {name for name, where, _ in cluster.orders if where == "x"} == {"m0"}  # x is not trusted any more
    notes = {(e.job.case.name, e.candidate): e.notes for e in events if isinstance(e, Record)}
    assert notes["m0", "b"] == ("measured again after x was lost",)
    assert notes["m0", "a"] == ()
    assert len([e for e in events if isinstance(e, Started)]) == 5


def test_a_job_that_loses_every_node_has_failure_records_at_last(tmp_path: Path) -> None:
    def script(one: Work, slot: Slot) -> Sequence[Message]:
        if one.job.case.name == "m1":
            return [HELLO, SessionLost("the node's memory was full")]
        return healthy(one, slot)

    cluster = Cluster([node("x"), node("y")], script)
    events, _ = run(cluster, FIVE, tmp_path)
    assert recorded(events) == ALL
    assert len([order for order in cluster.orders if order[0] == "m1"]) == ATTEMPTS
    failed = [e for e in events if isinstance(e, Record) and e.status is not Status.PASS]
    assert [(e.job.case.name, e.candidate, e.status) for e in failed] == [
        ("m1", candidate, Status.INFRA_ERROR) for candidate in ("a", "b")
    ]
    assert failed[0].failure is not None
    assert "memory was full" in failed[0].failure.message
    assert failed[0].failure.log == f"{failed[0].job.key}.log"


def test_a_record_that_comes_twice_counts_once_and_silence_is_a_loss(tmp_path: Path) -> None:
    def script(one: Work, slot: Slot) -> Sequence[Message]:
        again = [{"record": to_json(record(one, "a"))}] * 2
        return [HELLO, *again, None] if "a" in one.candidates else healthy(one, slot)

    events, _ = run(Cluster([node("x")], script), FIVE[:1], tmp_path)
    assert recorded(events) == ALL[:2]


def test_a_stop_lets_rounds_end_and_starts_nothing_new(tmp_path: Path) -> None:
    pressed: list[int] = []

    def waiting(one: Work, slot: Slot) -> Sequence[Message]:
        if one.job.case.name == "m1":
            return []  # it never gets its node
        return [HELLO, {"record": to_json(record(one, "a"))}, HELLO, HELLO]

    cluster = Cluster([node("x"), node("y")], waiting)
    events = []
    for event in Dispatcher(cluster, job_command).run(FIVE, Folder(tmp_path), lambda: bool(pressed)):
        events.append(event)
        if isinstance(event, Record):
            pressed.append(1)
    assert recorded(events) == [("m0", "a")]
    assert [session.told for session in cluster.sessions] == [["stop", "kill"], ["kill"]]


def test_whoever_stops_listening_ends_all_jobs(tmp_path: Path) -> None:
    cluster = Cluster([node("x"), node("y")], healthy)
    events = Dispatcher(cluster, job_command).run(FIVE, Folder(tmp_path), lambda: False)
    next(events)
    events.close()
    assert [session.told for session in cluster.sessions] == [["abandon", "kill"]] * 2


def test_a_cluster_that_loses_its_last_node_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    cluster = Cluster([node("x")], lambda one, slot: [HELLO, SessionLost("gone")])
    start = cluster.start

    def last_start(order: Mapping[str, Any], slot: Slot) -> NodeSession:
        cluster.living = []
        return start(order, slot)

    cluster.start = last_start  # type: ignore[method-assign]
    with pytest.raises(UsageError, match=r"no node left .* continue with --resume"):
        run(cluster, FIVE, tmp_path)


def test_kinds_of_devices_follow_each_other(tmp_path: Path) -> None:
    cluster = Cluster([node("x", gpus=2)], healthy)
    events, _ = run(cluster, [work("g", "cuda"), *FIVE[:1], work("h", "cuda")], tmp_path)
    assert [e.job.device for e in events if isinstance(e, Started)] == ["cuda", "cuda", "cpu"]


def test_a_cpu_job_has_a_node_for_itself_unless_it_says_how_many_threads() -> None:
    nodes = [node("x", 4), node("y", 8, 2), node("z", 0)]
    assert [(s.node.id, s.cpus, s.gpus) for s in slots(nodes, "cpu", None)] == [("x", 4, 0), ("y", 8, 0)]
    assert [s.node.id for s in slots(nodes, "cpu", 3)] == ["x", "y", "y"]
    assert [(s.node.id, s.index, s.cpus, s.gpus) for s in slots(nodes, "cuda", None)] == [
        ("y", 0, 4, 1),
        ("y", 1, 4, 1),
    ]
    shared = slots(nodes, "cpu", 3)[0]
    assert shared.notes == (
        "had 3 of the node's 4 cores; other jobs on the node may have disturbed the times",
    )
    assert all(slot.notes == () for slot in slots(nodes, "cuda", None))


def test_jobs_that_fit_nowhere_are_refused_in_a_sentence() -> None:
    four = replace(work("m", "cpu").job, protocol=replace(work("m").job.protocol, threads=9))
    for nodes, job, sentence in (
        ([node("x")], work("m", "cuda").job, "--devices: no node of the Ray cluster has a GPU"),
        ([node("x")], four, "--threads: no node of the Ray cluster has 9 cores; the largest has 4"),
        ([node("x", 0)], work("m", "cpu").job, "--executor=ray: no node of the Ray cluster offers a core"),
    ):
        with pytest.raises(UsageError, match=sentence):
            check_room(nodes, [job])
    with pytest.raises(UsageError, match="write cuda, not cuda:1"):
        check_devices([work("m", "cuda:1").job])


# -- on the node ------------------------------------------------------------------


def order(one: Work) -> dict[str, Any]:
    asked = {"job": to_json(one.job), "candidates": list(one.candidates), "log": "cases/m/output.log"}
    return dict(json.loads(json.dumps(asked)))


def test_a_node_tells_what_happens_in_plain_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")

    def measure(one: Work, watch: Watch, stop: Stop, gate: Gate) -> Iterator[Record]:
        for rounds in range(100):  # most of it is no news worth the node's time
            watch.activity(Activity(phase="measure", rounds=rounds))
        watch.rounds(6, {"a": ([1.0], [2.0])})
        yield record(one, "a")

    messages = list(NodeJob(order(work("m")), measure).messages())
    assert json.loads(json.dumps(messages)) == messages
    assert messages[0]["activity"] == ["start", "", 0]
    assert {"rounds": 6, "pairs": {"a": [[1.0], [2.0]]}, "output": ""} in messages
    told = from_json(Record, messages[-1]["record"])
    assert told.environment == {"env.CUDA_VISIBLE_DEVICES": "3"}
    assert len(messages) < 6


def test_a_node_can_be_told_to_stop_and_to_drop_everything() -> None:
    def endless(one: Work, watch: Watch, stop: Stop, gate: Gate) -> Iterator[Record]:
        while not stop():
            watch.activity(Activity(phase="measure"))
        yield record(one, "a")

    stopped = NodeJob(order(work("m")), endless)
    stopped.stop()
    assert len(list(stopped.messages())) == 1  # nothing begins

    abandoned = NodeJob(order(work("m")), endless)
    messages = abandoned.messages()
    next(messages)
    abandoned.abandon()
    assert list(messages) == []


def test_a_worker_has_the_threads_that_it_would_have_without_ray() -> None:
    current = {"OMP_NUM_THREADS": "1", "PYTHONPATH": "/theirs", "X": "y"}
    assert node_environment(current, {}, "/mine") == {"PYTHONPATH": "/mine:/theirs", "X": "y"}
    assert node_environment(current, {"OMP_NUM_THREADS": "1"}, "")["OMP_NUM_THREADS"] == "1"
