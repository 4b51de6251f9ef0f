"""``--executor=ray``: each job is one task of a Ray cluster, with a GPU or its cores to itself.

Ray places the tasks and waits for free resources. A task that is lost with its node starts again.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.codec import from_json, to_json
from harness.devices import of, type_of
from harness.schema import Failure, Job, Record, Scalar
from runner.engine import JobContext, Place, Reproduce
from runner.engine.executors import Cases, Events, JobEnded, Started, Stop, Work, grouped
from runner.engine.experiments import Attempt
from runner.engine.job_session import now
from runner.engine.launch import Workers, measure
from runner.errors import UsageError
from runner.names import counted
from runner.plan.interpreter import copy_code
from runner.store.joined import Key, key_of

OBJECT_STORE_BYTES = 100 << 20  # for a cluster that is started here: messages are small
ANSWER_S = 5.0
ATTEMPTS = 3  # a job is given up after this many losses in a row without a record
PATIENCE_S = 30.0  # if no job has started after this time, a message says that the run is waiting
TICK_S = 1.0
THREADS = "OMP_NUM_THREADS"
KEPT = ("repro-*.py", "parity-*.csv", "trace-*.json")  # files of a case, besides its log
OF_ATTEMPT = ("process", "experiment", "round")
LONGEST_OUTPUT = 1 << 18  # characters of a message's output; the middle of a longer output is left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine of the cluster, with the resources that the cluster lists for it."""

    id: str
    name: str
    cpus: float
    gpus: int


@dataclass(slots=True)
class _Task:
    """An attempt, its candidates without a record, the records so far, and the stream of its messages."""

    work: Work
    missing: list[str]
    began: str
    seen: set[Key] = field(default_factory=set)
    stream: Any = None
    node: Node | None = None
    losses: int = 0
    notes: tuple[str, ...] = ()


@contextmanager
def connected(address: str | None, jobs: Sequence[Job], reproduce: Reproduce) -> Iterator[RayExecutor]:
    """An executor on the cluster at ``address``, else at ``RAY_ADDRESS``, else on one started here.

    Nodes get this program's code. They must have torch, Ray and Python, and the files that the command
    line names (suites, own models) at the same paths. Raises ``UsageError`` if the cluster cannot be used.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no usage reports; Ray reads this at import
    try:
        import ray
    except ImportError:
        raise UsageError(
            "--executor=ray: the package ray is not installed; pip install 'torchduet[ray]'"
        ) from None
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    _check_answers(address)
    local: dict[str, Any] = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    with tempfile.TemporaryDirectory(prefix="torchduet-") as folder:
        copy_code(Path(folder))
        try:
            ray.init(
                address,
                runtime_env={"working_dir": folder},
                logging_level=logging.ERROR,
                log_to_driver=False,
                **(local if address == "local" else {}),
            )
        except Exception as error:  # a node that does not start within 30 s is a plain Exception of Ray
            ray.shutdown()
            raise _unusable(address, " ".join(str(error).split())[:200]) from None
        try:
            for job in jobs:
                resources(job, nodes())
            yield RayExecutor(reproduce)
        finally:
            ray.shutdown()


def _check_answers(address: str) -> None:
    """Raises ``UsageError`` if nothing listens at host:port. Ray itself would try for minutes."""
    if address.startswith("ray://"):
        raise UsageError("--ray-address: give the cluster's own address, such as 10.0.0.1:6379, not ray://")
    host, separator, port = address.rpartition(":")
    if separator and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise _unusable(address, reason) from None


def _unusable(address: str, reason: str) -> UsageError:
    what = f"--ray-address: {address} cannot be used"
    if address == "local":
        what = "--executor=ray: no cluster can be started"
    return UsageError(f"{what} ({reason}); start one with: ray start --head, and give --ray-address=auto")


def nodes(*, alive: bool = True) -> list[Node]:
    """The machines of the cluster; with ``alive=False``, those that were lost, too."""
    import ray

    return [
        Node(
            id=node["NodeID"],
            name=f"{node['NodeManagerHostname']} {node['NodeManagerAddress']} {node['NodeID'][:8]}",
            cpus=float(node["Resources"].get("CPU", 0)),
            gpus=int(node["Resources"].get("GPU", 0)),
        )
        for node in ray.nodes()
        if node["Alive"] or not alive
    ]


def resources(job: Job, nodes: Sequence[Node]) -> tuple[float, int]:
    """The cores and GPUs that a job asks for. Raises ``UsageError`` if no node has them.

    A job on a GPU has its share of the node's cores. A job on CPUs has ``--threads`` cores, or all cores of
    the largest node, so that nothing runs beside it.
    """
    if ":" in job.device:
        raise UsageError(
            f"--devices: with --executor=ray the cluster chooses the GPU; "
            f"write {type_of(job.device)}, not {job.device}"
        )
    if of(job.device).accelerated:
        shares = [node.cpus // node.gpus for node in nodes if node.gpus >= 1]
        if not shares:
            raise UsageError("--devices: no node of the Ray cluster has 1 GPU; use --devices=cpu")
        return min(shares), 1
    most, threads = max((node.cpus for node in nodes), default=0.0), job.protocol.threads
    if not most:
        raise UsageError("--executor=ray: no node of the Ray cluster offers a core; add nodes with CPU cores")
    if threads and threads > most:
        raise UsageError(
            f"--threads: no node of the Ray cluster has {threads} cores; the largest has {most:g}"
        )
    return float(threads or most), 0


class RayExecutor:
    """Runs the jobs of a plan as tasks, one type of device after another. See ``executors.Executor``.

    When ``stop()`` becomes true, running tasks end at once: ``--resume`` measures them again.
    """

    def __init__(self, reproduce: Reproduce) -> None:
        self._reproduce = reproduce

    def run(self, work: Sequence[Work], cases: Cases, stop: Stop) -> Events:
        for together in grouped(work, type_of):
            if not stop():
                yield from self._run(together, cases, stop)

    def _run(self, work: Sequence[Work], cases: Cases, stop: Stop) -> Events:
        import ray

        tasks = [_Task(work=item, missing=list(item.attempt.candidates), began=now()) for item in work]
        quiet_until = time.monotonic() + PATIENCE_S
        try:
            for task in tasks:
                self._start(task, cases)
            while tasks:
                if stop():
                    for task in tasks:
                        ray.cancel(task.stream)
                if time.monotonic() > quiet_until and all(task.node is None for task in tasks):
                    print("waiting for the Ray cluster: no job has started yet", file=sys.stderr)
                    quiet_until = float("inf")
                streams = [task.stream for task in tasks]
                ready, _ = ray.wait(streams, num_returns=1, timeout=TICK_S, fetch_local=False)
                for task in [task for task in tasks if task.stream in ready]:
                    yield from self._hear(task, tasks, cases, stop)
        finally:
            for task in [task for task in tasks if task.stream is not None]:
                ray.cancel(task.stream, force=True)

    def _start(self, task: _Task, cases: Cases) -> None:
        import ray

        job = task.work.job
        cpus, gpus = resources(job, nodes())
        order = {
            "job": to_json(job),
            "candidates": list(task.missing),
            "attempt": {name: getattr(task.work.attempt, name) for name in OF_ATTEMPT},
            "log": cases.relative(cases.open_case(job)),
            "reproduce": {name: self._reproduce(job, (name,)) for name in task.missing},
            "path": str(Path.cwd()),
            "threads": os.environ.get(THREADS),
        }
        # no retries by Ray: they would repeat candidates that have a record
        remote = ray.remote(measured).options(
            num_cpus=cpus, num_gpus=gpus, max_retries=0, num_returns="streaming", scheduling_strategy="SPREAD"
        )
        task.stream = remote.remote(json.dumps(order))

    # -- messages of the nodes ------------------------------------------------

    def _hear(self, task: _Task, tasks: list[_Task], cases: Cases, stop: Stop) -> Events:
        import ray

        try:
            message = json.loads(ray.get(next(task.stream)))
        except StopIteration:
            why = "it ended without a record"
        except ray.exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            why = f"{type(error).__name__}: {lines[-1][:300] if lines else ''}"
        else:
            yield from self._events(message, task, cases)
            return
        if task.missing and not stop():
            yield from self._lost(task, cases, why)
        if not task.missing or stop():
            tasks.remove(task)
            yield JobEnded(job=task.work.job)

    def _events(self, message: Mapping[str, Any], task: _Task, cases: Cases) -> Events:
        job = task.work.job
        if "node" in message:
            if task.node is None:
                yield Started(job=job)
            task.node = next(node for node in nodes(alive=False) if node.id == message["node"])
        if text := message.get("output"):
            with cases.open_case(job).open("a", encoding="utf-8") as log:
                log.write(text)
        for name, text in message.get("files", {}).items():
            (cases.open_case(job).parent / Path(name).name).write_text(text, encoding="utf-8")
        if "record" in message:
            record = from_json(Record, message["record"])
            if key_of(record) not in task.seen:  # exactly one record of each process
                task.seen.add(key_of(record))
                task.missing = [
                    name for name in task.missing if record.experiment or name != record.candidate
                ]
                task.losses = 0
                yield _placed(record, task, message["cpus"])
        if message.get("ended"):
            task.missing.clear()

    def _lost(self, task: _Task, cases: Cases, why: str) -> Iterator[Record]:
        """Starts the task again; after ``ATTEMPTS`` losses, its candidates get failure records instead."""
        job, node = task.work.job, task.node.name if task.node else "a node"
        task.losses += 1
        if task.losses < ATTEMPTS:
            task.notes = (*task.notes, f"measured again after {node} was lost")
            print(f"{node} was lost ({why}); {job.key} starts again", file=sys.stderr)
            try:
                return self._start(task, cases)
            except UsageError as error:  # no node that is left has room
                why = str(error)
        message = f"lost {counted(task.losses, 'time')} in a row, the last time on {node}: {why}"
        log = cases.relative(cases.open_case(job))
        failure = Failure(kind="lost", message=message, phase="start", log=log)
        for candidate in task.missing:
            lost = task.work.attempt.lost(candidate, failure, self._reproduce(job, (candidate,)))
            yield replace(lost, notes=task.notes, started=task.began)
        task.missing.clear()


def _placed(record: Record, task: _Task, cpus: float) -> Record:
    """The record with the node that measured it."""
    notes, node = (*record.notes, *task.notes), task.node
    assert node is not None
    if not of(record.job.device).accelerated and cpus < node.cpus:
        shared = f"had {cpus:g} of the node's {node.cpus:g} cores"
        notes = (*notes, f"{shared}; other jobs on the node may have disturbed the times")
    facts: dict[str, Scalar] = {"node": node.name, "node_cpus": node.cpus, "job_cpus": cpus}
    return replace(record, environment={**record.environment, **facts}, notes=notes)


# -- on a node --------------------------------------------------------------------


def measured(order: str) -> Iterator[str]:
    """Measures one job, as a task on a node. Messages are JSON, which no version of a package changes."""
    import ray

    task = json.loads(order)
    context = ray.get_runtime_context()
    cpus = context.get_assigned_resources().get("CPU", 0.0)
    # the GPU that Ray assigned, also if the worker dies before it can report it
    card = {f"env.{name}": os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ}
    with tempfile.TemporaryDirectory(prefix="torchduet-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "output.log"
        log.touch()
        yield json.dumps({"node": context.get_node_id(), "output": f"# on {os.uname().nodename}\n"})
        job_context = JobContext(
            candidates=tuple(task["candidates"]),
            place=Place(logs={"": task["log"]}),
            reproduce=lambda _, names: str(task["reproduce"].get(names[0], "")),
        )
        workers = Workers(base=worker_base(os.environ, task["threads"], task["path"]))
        with log.open(encoding="utf-8", errors="replace") as output:
            attempt = Attempt(from_json(Job, task["job"]), tuple(task["candidates"]), **task["attempt"])
            for record in measure(attempt, (), job_context, log, workers):
                pinned = to_json(replace(record, environment={**card, **record.environment}))
                yield json.dumps({"record": pinned, "cpus": cpus, "output": _shortened(output.read())})
            files = {path.name: path.read_text("utf-8") for kind in KEPT for path in log.parent.glob(kind)}
            yield json.dumps({"output": _shortened(output.read()), "files": files, "ended": True})


def worker_base(current: Mapping[str, str], threads: str | None, path: str) -> dict[str, str]:
    """The variables for a worker: those of the node, with the folder and ``OMP_NUM_THREADS`` of the run.

    Ray sets ``OMP_NUM_THREADS`` to the number of assigned cores; eager would have other threads than without.
    """
    others = {name: value for name, value in current.items() if name != THREADS}
    paths = os.pathsep.join(filter(None, (path, current.get("PYTHONPATH"))))
    return {**others, "PYTHONPATH": paths, **({THREADS: threads} if threads else {})}


def _shortened(text: str) -> str:
    half = LONGEST_OUTPUT // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[{left_out} characters left out]\n{text[-half:]}" if left_out > 0 else text
