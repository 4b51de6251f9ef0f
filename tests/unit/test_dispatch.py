"""Jobs on a made up cluster: room for them, lost nodes, exactly one record for each candidate."""

from __future__ import annotations

import json
import threading
import time
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
from runner.engine.executors import Ended, Event, Started, Stop, Waits, Work
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
from runner.engine.executors.node import NodeJobs, node_environment
from runner.errors import UsageError
from tests.unit.test_executors import PATIENCE_S, Folder, record, recorded, work

Message = dict[str, Any] | SessionLost | None
HELLO: dict[str, Any] = {"of": 0, "activity": ["start", "", 0], "output": "# on x\n"}


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
        self.waves: list[list[str]] = []  # the jobs of each order
        self.ahead: set[int] = set()
        self.together = 0

    def nodes(self) -> Sequence[Node]:
        return self.living

    def start(self, order: Mapping[str, Any], slot: Slot) -> NodeSession:
        messages: list[Message] = []
        self.waves.append([asked["job"]["case"]["name"] for asked in order["jobs"]])
        self.ahead.add(order["ahead"])
        for place, asked in enumerate(order["jobs"]):
            one = Work(job=from_json(Job, asked["job"]), candidates=tuple(asked["candidates"]))
            assert asked["reproduce"] == {name: job_command(one.job, (name,)) for name in one.candidates}
            self.orders.append((one.job.case.name, slot.node.id, one.candidates))
            said = self.script(one, slot)
            messages += [{**text, "of": place} if isinstance(text, dict) else text for text in said]
        # the session of several jobs ends once, after the last of them
        ends = messages[-1:] if messages[-1:] == [None] else []
        self.sessions.append(Session([*(text for text in messages if text is not None), *ends], slot))
        return self.sessions[-1]

    def ready(self, sessions: Sequence[NodeSession], timeout_s: float) -> Collection[NodeSession]:
        self.together = max(self.together, len(sessions))
        places = [(s.slot.node.id, s.slot.index) for s in sessions if isinstance(s, Session)]
        assert len(set(places)) == len(places), "two jobs in one place"
        return [one for one in sessions if isinstance(one, Session) and one.messages][:1]


def healthy(one: Work, slot: Slot) -> Sequence[Message]:
    records = ({"record": to_json(record(one, c)), "output": f"{c}\n"} for c in one.candidates)
    return [HELLO, {"waits": True}, *records, {"ended": True}, None]


def run(
    cluster: Cluster, planned: Sequence[Work], path: Path, stop: Stop = lambda: False, ahead: int = 1
) -> tuple[list[Event], Dispatcher]:
    ticks = iter(range(10_000))
    dispatcher = Dispatcher(
        cluster, job_command, ahead=ahead, clock=lambda: float(next(ticks)), sleep=lambda seconds: None
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


SIXTEEN = [work(f"m{n}", "cpu") for n in range(16)]


def test_jobs_that_prepare_side_by_side_have_a_node_together(tmp_path: Path) -> None:
    cluster = Cluster([node("x")], healthy)
    events, _ = run(cluster, SIXTEEN, tmp_path, ahead=3)
    assert [len(wave) for wave in cluster.waves] == [6, 6, 4]
    assert [name for wave in cluster.waves for name in wave] == [one.job.case.name for one in SIXTEEN]
    assert cluster.ahead == {3}
    assert cluster.together == 1
    assert len(recorded(events)) == 32
    for kind in (Started, Waits, Ended):
        assert sorted(e.job.key for e in events if isinstance(e, kind)) == sorted(
            one.job.key for one in SIXTEEN
        )
    log = (tmp_path / f"{SIXTEEN[4].job.key}.log").read_text()
    assert log == "# on x\na\nb\n"  # of this job alone


def test_several_nodes_share_the_rest_of_the_jobs(tmp_path: Path) -> None:
    cluster = Cluster([node("x"), node("y")], healthy)
    events, _ = run(cluster, SIXTEEN, tmp_path, ahead=3)
    assert len(recorded(events)) == 32
    assert cluster.together == 2
    assert [len(wave) for wave in cluster.waves[:2]] == [6, 5]
    assert sum(len(wave) for wave in cluster.waves) == 16


def test_by_expected_times_short_jobs_begin_first_and_each_wave_begins_with_its_longest(
    tmp_path: Path,
) -> None:
    jobs = [replace(one, expected_s=float(10 - number)) for number, one in enumerate(SIXTEEN[:9])]
    alone = Cluster([node("x")], healthy)
    run(alone, jobs, tmp_path)
    assert alone.waves == [[f"m{n}"] for n in range(8, -1, -1)]
    together = Cluster([node("x")], healthy)
    run(together, jobs, tmp_path, ahead=2)
    assert together.waves == [["m8"], ["m4", "m5", "m6", "m7"], ["m0", "m1", "m2", "m3"]]


def test_after_a_loss_the_jobs_of_a_wave_run_alone_and_only_the_cause_is_given_up(tmp_path: Path) -> None:
    def script(one: Work, slot: Slot) -> Sequence[Message]:
        if one.job.case.name == "m1":
            return [HELLO, SessionLost("the node's memory was full")]
        return healthy(one, slot)

    cluster = Cluster([node("x")], script)
    events, _ = run(cluster, FIVE, tmp_path, ahead=3)
    assert recorded(events) == ALL
    assert cluster.waves[0] == [one.job.case.name for one in FIVE]
    assert all(len(wave) == 1 for wave in cluster.waves[1:])
    failed = [e.job.case.name for e in events if isinstance(e, Record) and e.status is not Status.PASS]
    assert failed == ["m1", "m1"]
    assert sorted(e.job.key for e in events if isinstance(e, Ended)) == sorted(one.job.key for one in FIVE)


def test_a_stop_ends_every_job_of_a_wave(tmp_path: Path) -> None:
    pressed: list[int] = []
    cluster = Cluster([node("x")], healthy)
    events = []
    dispatcher = Dispatcher(cluster, job_command, ahead=3)
    for event in dispatcher.run(FIVE, Folder(tmp_path), lambda: bool(pressed)):
        events.append(event)
        if isinstance(event, Record):
            pressed.append(1)
    assert recorded(events) == [("m0", "a")]
    assert sorted(e.job.key for e in events if isinstance(e, Ended)) == sorted(one.job.key for one in FIVE)


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
    assert [(s.node.id, s.cpus) for s in slots(nodes, "cpu", 3, ahead=2)] == [("x", 4), ("y", 8)]
    assert slots(nodes, "cpu", 3, ahead=2)[0].notes == ()
    assert slots(nodes, "cpu", 9, ahead=2) == ()
    assert len(slots(nodes, "cuda", None, ahead=2)) == 2
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


def order(*work: Work, ahead: int = 1) -> dict[str, Any]:
    jobs = [
        {"job": to_json(one.job), "candidates": list(one.candidates), "log": "cases/m/output.log"}
        for one in work
    ]
    return dict(json.loads(json.dumps({"jobs": jobs, "ahead": ahead})))


def test_a_node_tells_what_happens_in_plain_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")

    def measure(one: Work, watch: Watch, stop: Stop, gate: Gate) -> Iterator[Record]:
        for rounds in range(100):  # most of it is no news worth the node's time
            watch.activity(Activity(phase="measure", rounds=rounds))
        watch.rounds(6, {"a": ([1.0], [2.0])})
        yield record(one, "a")

    messages = list(NodeJobs(order(work("m")), measure).messages())
    assert json.loads(json.dumps(messages)) == messages
    assert messages[0]["activity"] == ["start", "", 0]
    assert {"of": 0, "rounds": 6, "pairs": {"a": [[1.0], [2.0]]}, "output": ""} in messages
    told = from_json(Record, messages[-2]["record"])
    assert told.environment == {"env.CUDA_VISIBLE_DEVICES": "3"}
    assert messages[-1] == {"of": 0, "ended": True, "output": ""}
    assert len(messages) < 7


def test_on_a_node_jobs_prepare_side_by_side_and_are_timed_one_after_another() -> None:
    both = threading.Barrier(2, timeout=PATIENCE_S)
    timed = threading.Lock()

    def measure(one: Work, watch: Watch, stop: Stop, gate: Gate) -> Iterator[Record]:
        with gate.preparing():
            both.wait()  # two of them at once
        with gate.timing():
            assert timed.acquire(blocking=False), "two jobs are timed at once"
            time.sleep(0.01)
            timed.release()
        yield record(one, "a")

    jobs = [work(f"m{n}", "cpu", ("a",)) for n in range(4)]
    messages = list(NodeJobs(order(*jobs, ahead=2), measure).messages())
    records = [from_json(Record, m["record"]) for m in messages if "record" in m]
    assert sorted(one.job.case.name for one in records) == ["m0", "m1", "m2", "m3"]
    for word in ("waits", "ended"):
        assert sorted(m["of"] for m in messages if word in m) == [0, 1, 2, 3]
    assert all(
        jobs[m["of"]].job.key == from_json(Record, m["record"]).job.key for m in messages if "record" in m
    )


def test_a_node_can_be_told_to_stop_and_to_drop_everything() -> None:
    def endless(one: Work, watch: Watch, stop: Stop, gate: Gate) -> Iterator[Record]:
        while not stop():
            watch.activity(Activity(phase="measure"))
        yield record(one, "a")

    stopped = NodeJobs(order(work("m")), endless)
    stopped.stop()
    assert list(stopped.messages()) == []  # nothing begins

    abandoned = NodeJobs(order(work("m")), endless)
    messages = abandoned.messages()
    next(messages)
    abandoned.abandon()
    assert list(messages) == []


def test_a_worker_has_the_threads_that_it_would_have_without_ray() -> None:
    current = {"OMP_NUM_THREADS": "1", "PYTHONPATH": "/theirs", "X": "y"}
    assert node_environment(current, {}, "/mine") == {"PYTHONPATH": "/mine:/theirs", "X": "y"}
    assert node_environment(current, {"OMP_NUM_THREADS": "1"}, "")["OMP_NUM_THREADS"] == "1"
