"""Assigns jobs to the nodes of a cluster, and repeats the jobs of a lost node.

This file does not depend on Ray: ``runner.engine.executors.ray_cluster`` implements ``Cluster``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Protocol

from harness.codec import from_json, to_json
from harness.devices import of, type_of
from harness.schema import Failure, Job, Record, Scalar, Status
from harness.worker.status_page import Activity
from runner.engine.executors import Cases, Doing, Ended, Events, Started, Stop, Timed, Waits, Work, by_kind
from runner.engine.executors.gate import sessions
from runner.engine.job_run import Reproduce
from runner.errors import UsageError

ATTEMPTS = 3  # a job is given up after this many losses in a row without a record
SUSPECT_S = 60.0  # for this time, a node that lost a job gets no job if another node is free
NODES_S = 120.0  # how long to wait for a node if the cluster has none left
PATIENCE_S = 30.0  # if no job has started after this time, a message says that the run is waiting
TICK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine of the cluster, with the resources that the cluster lists for it."""

    id: str
    name: str
    cpus: float
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Room for one order on a node. ``index`` numbers the slots of the node."""

    node: Node
    index: int
    cpus: float
    gpus: int

    @property
    def facts(self) -> dict[str, Scalar]:
        """Facts for a record's environment: the node, and its cores."""
        return {"node": self.node.name, "node_cpus": self.node.cpus, "job_cpus": self.cpus}

    @property
    def notes(self) -> tuple[str, ...]:
        if self.gpus or self.cpus >= self.node.cpus:
            return ()
        shared = f"had {self.cpus:g} of the node's {self.node.cpus:g} cores"
        return (f"{shared}; other jobs on the node may have disturbed the times",)


class SessionLost(Exception):
    """The process on the node has ended, alone or with its node."""


class NodeSession(Protocol):
    """The jobs of one order on a node."""

    def receive(self) -> dict[str, Any] | None:
        """The next message (see ``executors.node``); None after the last. Raises ``SessionLost``."""

    def stop(self) -> None:
        """Ends the jobs after the current rounds."""

    def abandon(self) -> None:
        """Tells the jobs to end at once. Does not wait."""

    def kill(self) -> None:
        """Ends the process of the jobs."""


class Cluster(Protocol):
    def nodes(self) -> Sequence[Node]: ...

    def start(self, order: Mapping[str, Any], slot: Slot) -> NodeSession: ...

    def ready(self, sessions: Sequence[NodeSession], timeout_s: float) -> Collection[NodeSession]:
        """The sessions with a message, or that have ended. Waits for one up to ``timeout_s``."""


def slots(nodes: Sequence[Node], kind: str, threads: int | None, ahead: int = 1) -> tuple[Slot, ...]:
    """The slots for this type of device. A CPU job takes a whole node, or ``threads`` of its cores.

    If ``ahead`` > 1 jobs prepare side by side, they have a whole node together: only then can one of them be
    timed while nothing else of the run is on the node.
    """
    found, accelerated = [], of(kind).accelerated
    for node in nodes:
        if accelerated:
            room, cpus = node.gpus, float(node.cpus // node.gpus) if node.gpus else 0.0
        else:
            cpus = float(threads or node.cpus)
            room = int(node.cpus // cpus) if cpus else 0
            if ahead > 1 and room:
                cpus, room = float(node.cpus), 1
        gpus = int(accelerated)
        found += [Slot(node=node, index=index, cpus=cpus, gpus=gpus) for index in range(room)]
    return tuple(found)


def check_devices(jobs: Sequence[Job]) -> None:
    """Raises ``UsageError`` if a job names a GPU by its index."""
    for job in jobs:
        if ":" in job.device:
            raise UsageError(
                f"--devices: with --executor=ray the cluster chooses the GPU; "
                f"write {type_of(job.device)}, not {job.device}"
            )


def check_room(nodes: Sequence[Node], jobs: Sequence[Job]) -> None:
    """Raises ``UsageError`` if a job fits on no node."""
    for job in jobs:
        if slots(nodes, job.device, job.protocol.threads):
            continue
        accelerated = of(job.device).accelerated
        if not accelerated and job.protocol.threads:
            most = max((node.cpus for node in nodes), default=0)
            raise UsageError(
                f"--threads: no node of the Ray cluster has {job.protocol.threads} cores; "
                f"the largest has {most:g}"
            )
        if not accelerated:
            raise UsageError(
                "--executor=ray: no node of the Ray cluster offers a core; add nodes with CPU cores"
            )
        raise UsageError("--devices: no node of the Ray cluster has a GPU; use --devices=cpu")


@dataclass(slots=True)
class _Task:
    """A job, and its state in the cluster. ``missing`` are its candidates without a record."""

    work: Work
    missing: list[str]
    began: str
    losses: int = 0
    notes: tuple[str, ...] = ()
    announced: bool = False


@dataclass(slots=True)
class _Running:
    """An order that a node works on. ``tasks``: those that have not ended, by their place in the order."""

    tasks: dict[int, _Task]
    slot: Slot
    session: NodeSession
    alive: bool = False  # it has sent a message
    told_to_stop: bool = False


class Dispatcher:
    """Runs work on a cluster, in one thread: each order in its own slot. Lost jobs run again on other nodes.

    An order is one job, or with ``ahead`` > 1 the jobs that prepare side by side and wait for each other: a
    wave of ``executors.gate``.
    """

    def __init__(
        self,
        cluster: Cluster,
        reproduce: Reproduce,
        *,
        ahead: int = 1,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._reproduce = reproduce
        self._ahead = ahead
        self._clock = clock
        self._sleep = sleep
        self._suspects: dict[str, float] = {}
        self._running: list[_Running] = []

    def run(self, work: Sequence[Work], cases: Cases, stop: Stop) -> Events:
        """See ``runner.engine.executors.Executor``. Raises ``UsageError`` if no node is left."""
        try:
            for kind, together in by_kind(work).items():
                yield from self._run_kind(kind, together, cases, stop)
        finally:
            for running in self._running:
                running.session.abandon()
            for running in self._running:
                running.session.kill()
            self._running.clear()

    def _run_kind(self, kind: str, work: Sequence[Work], cases: Cases, stop: Stop) -> Events:
        waves = sessions(self._ahead)
        waiting = [_Task(work=one, missing=list(one.candidates), began=_now()) for one in work]
        largest = waves
        quiet_since: float | None = self._clock()
        nodeless_since: float | None = None
        while waiting or self._running:
            if stop():
                waiting.clear()
                self._stop_all()
            if waiting:
                largest = self._start_some(kind, waiting, cases, largest)
            if not self._running:
                nodeless_since = self._wait_for_nodes(nodeless_since) if waiting else None
                continue
            nodeless_since = None
            if any(running.alive for running in self._running):
                quiet_since = None
            elif quiet_since is not None and self._clock() - quiet_since > PATIENCE_S:
                print("waiting for the Ray cluster: nothing has started yet", file=sys.stderr)
                quiet_since = None
            ready = self._cluster.ready([running.session for running in self._running], TICK_S)
            for running in [one for one in self._running if one.session in ready]:
                yield from self._hear(running, waiting, cases, stop)

    # -- starting and stopping ------------------------------------------------

    def _slots(self, kind: str, one: Work) -> tuple[Slot, ...]:
        """The slots of the nodes that have not lost a job lately, or of all nodes."""
        nodes, now = self._cluster.nodes(), self._clock()
        trusted = [node for node in nodes if self._suspects.get(node.id, now) <= now] or nodes
        return slots(trusted, kind, one.job.protocol.threads, self._ahead)

    def _start_some(self, kind: str, waiting: list[_Task], cases: Cases, largest: int) -> int:
        """Starts orders of up to ``largest`` jobs. Returns how many jobs the next order may have."""
        used = {(running.slot.node.id, running.slot.index) for running in self._running}
        found = self._slots(kind, waiting[0].work)
        for slot in found:
            if not waiting:
                break
            if (slot.node.id, slot.index) not in used:
                tasks = self._take(waiting, min(largest, max(self._ahead, -(-len(waiting) // len(found)))))
                order = {"jobs": [self._asked(task, cases) for task in tasks], "ahead": self._ahead}
                session = self._cluster.start(order, slot)
                self._running.append(_Running(tasks=dict(enumerate(tasks)), slot=slot, session=session))
                largest = sessions(self._ahead)
        return largest

    @staticmethod
    def _take(waiting: list[_Task], most: int) -> list[_Task]:
        """The next jobs for one order. A lost job goes alone: another job may have been the cause."""
        tasks = [waiting.pop(0)]
        while waiting and len(tasks) < most and not tasks[0].losses and not waiting[0].losses:
            tasks.append(waiting.pop(0))
        return tasks

    def _asked(self, task: _Task, cases: Cases) -> dict[str, Any]:
        job = task.work.job
        return {
            "job": to_json(job),
            "candidates": list(task.missing),
            "log": cases.relative(cases.open_case(job)),
            "reproduce": {name: self._reproduce(job, (name,)) for name in task.missing},
        }

    def _stop_all(self) -> None:
        for running in list(self._running):
            if not running.alive:  # it may never get a node
                running.session.kill()
                self._running.remove(running)
            elif not running.told_to_stop:
                running.session.stop()
                running.told_to_stop = True

    def _wait_for_nodes(self, since: float | None) -> float:
        since = self._clock() if since is None else since
        if self._clock() - since > NODES_S:
            raise UsageError(
                "--executor=ray: the cluster has no node left for the remaining jobs; "
                "continue with --resume when nodes are back"
            )
        self._sleep(TICK_S)
        return since

    # -- messages of the nodes ------------------------------------------------

    def _hear(self, running: _Running, waiting: list[_Task], cases: Cases, stop: Stop) -> Events:
        try:
            message = running.session.receive()
        except SessionLost as lost:
            yield from self._lost(running, waiting, cases, str(lost), stopped=stop())
            return
        if message is None:
            if any(task.missing for task in running.tasks.values()) and not stop():
                why = "it ended without a record"
                yield from self._lost(running, waiting, cases, why, stopped=False)
            else:
                self._running.remove(running)
                running.session.kill()
                yield from (Ended(job=task.work.job) for task in running.tasks.values())
            return
        running.alive = True
        task = running.tasks[message["of"]]
        yield from self._events(message, task, running.slot, cases)
        if "ended" in message and (not task.missing or stop()):
            del running.tasks[message["of"]]
            yield Ended(job=task.work.job)

    @staticmethod
    def _events(message: Mapping[str, Any], task: _Task, slot: Slot, cases: Cases) -> Events:
        """What a message says about its job."""
        job = task.work.job
        if not task.announced:
            task.announced = True
            yield Started(job=job)
        if text := message.get("output"):
            with cases.open_case(job).open("a", encoding="utf-8") as log:
                log.write(text)
        if "activity" in message:
            phase, variant, rounds = message["activity"]
            yield Doing(job=job, activity=Activity(phase=phase, variant=variant, rounds=rounds))
        if "waits" in message:
            yield Waits(job=job)
        if "pairs" in message:
            pairs = {name: (both[0], both[1]) for name, both in message["pairs"].items()}
            yield Timed(job=job, done=message["rounds"], pairs=pairs)
        if "record" in message:
            record = from_json(Record, message["record"])
            if record.candidate in task.missing:  # exactly one record per candidate
                task.missing.remove(record.candidate)
                task.losses = 0
                yield replace(
                    record,
                    environment={**record.environment, **slot.facts},
                    notes=(*record.notes, *slot.notes, *task.notes),
                )

    def _lost(
        self, running: _Running, waiting: list[_Task], cases: Cases, why: str, *, stopped: bool
    ) -> Events:
        node = running.slot.node
        self._running.remove(running)
        running.session.kill()
        self._suspects[node.id] = self._clock() + SUSPECT_S
        again = []
        for task in running.tasks.values():
            task.losses += 1
            if stopped or not task.missing:
                yield Ended(job=task.work.job)
            elif task.losses >= ATTEMPTS:
                yield from self._give_up(task, cases, node, why)
                yield Ended(job=task.work.job)
            else:
                task.notes = (*task.notes, f"measured again after {node.name} was lost")
                print(
                    f"{node.name} was lost ({why}); {task.work.job.key} starts again on another node",
                    file=sys.stderr,
                )
                again.append(task)
        waiting[:0] = again

    def _give_up(self, task: _Task, cases: Cases, node: Node, why: str) -> Iterator[Record]:
        job = task.work.job
        message = f"lost on {ATTEMPTS} nodes in a row, the last time on {node.name}: {why}"
        log = cases.relative(cases.open_case(job))
        for candidate in tuple(task.missing):
            task.missing.remove(candidate)
            yield Record(
                job=job,
                candidate=candidate,
                status=Status.INFRA_ERROR,
                failure=Failure(kind="lost", message=message, phase="start", log=log),
                reproduce=self._reproduce(job, (candidate,)),
                notes=task.notes,
                started=task.began,
                ended=_now(),
            )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
