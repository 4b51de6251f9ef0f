"""``--executor=ray``: jobs on the nodes of a Ray cluster, each with a GPU or the node's cores to itself."""

from __future__ import annotations

import json
import logging
import os
import socket
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harness.schema import Job
from runner.engine.executors.dispatch import (
    Dispatcher,
    Node,
    NodeSession,
    SessionLost,
    Slot,
    check_devices,
    check_room,
)
from runner.engine.job_run import Reproduce
from runner.errors import UsageError
from runner.plan.environments.code_folder import copy_code

OBJECT_STORE_BYTES = 100 << 20  # for a cluster that is started here: messages are small
ANSWER_S = 5.0
GOODBYE_S = 5.0  # for abandoned jobs to end their workers


@contextmanager
def connected(
    address: str | None, jobs: Sequence[Job], reproduce: Reproduce, ahead: int = 1
) -> Iterator[Dispatcher]:
    """An executor on the cluster at ``address``, else at ``RAY_ADDRESS``, else on one started here.

    ``ahead``: how many jobs prepare side by side on each node, or on each GPU.

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
    check_devices(jobs)
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
            cluster = RayCluster()
            check_room(cluster.nodes(), jobs)
            yield Dispatcher(cluster, reproduce, ahead=ahead)
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
    if address == "local":
        return UsageError(
            f"--executor=ray: no cluster can be started here ({reason}); on a busy machine, first start one "
            "with: ray start --head, and give --ray-address=auto"
        )
    return UsageError(
        f"--ray-address: {address} cannot be used ({reason}); "
        "start a cluster with: ray start --head, or leave the flag out"
    )


class Actor:
    """The process that Ray starts on a node for one order. Ray makes its methods remote."""

    def __init__(self, order: str) -> None:
        from runner.engine.executors.node import NodeJobs

        self._jobs = NodeJobs(json.loads(order))

    def messages(self) -> Iterator[str]:
        """The jobs' messages, as JSON, which does not depend on versions of Python or packages."""
        for message in self._jobs.messages():
            yield json.dumps(message)

    def stop(self) -> None:
        self._jobs.stop()

    def abandon(self) -> None:
        self._jobs.abandon()


class RaySession:
    """The parent's handle on the jobs of an order on a node."""

    def __init__(self, order: Mapping[str, Any], slot: Slot) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # No retries by Ray: they would repeat candidates that have a record. The dispatcher retries.
        # Concurrency 3: stop() and abandon() must run while messages() runs.
        remote = ray.remote(Actor).options(
            num_cpus=slot.cpus,
            num_gpus=slot.gpus,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=3,
            scheduling_strategy=NodeAffinitySchedulingStrategy(slot.node.id, soft=False),
        )
        self._actor = remote.remote(json.dumps({**order, "path": str(Path.cwd())}))
        self.stream = self._actor.messages.options(num_returns="streaming").remote()
        self._running = False  # it has sent a message and has not ended

    def receive(self) -> dict[str, Any] | None:
        import ray

        self._running = False
        try:
            message = json.loads(ray.get(next(self.stream)))
        except StopIteration:
            return None
        except ray.exceptions.RayError as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise SessionLost(f"{type(error).__name__}: {lines[-1].strip()[:300] if lines else ''}") from None
        self._running = True
        assert isinstance(message, dict)
        return message

    def stop(self) -> None:
        self._actor.stop.remote()

    def abandon(self) -> None:
        self._actor.abandon.remote()

    def kill(self) -> None:
        """Gives running jobs ``GOODBYE_S`` to end their workers, then kills the process on the node."""
        import ray

        if self._running:
            self.abandon()
        deadline = time.monotonic() + GOODBYE_S
        with suppress(SessionLost):
            while self._running and (left := deadline - time.monotonic()) > 0:
                if ray.wait([self.stream], timeout=left, fetch_local=False)[0]:
                    self.receive()
        ray.kill(self._actor)


class RayCluster:
    """The cluster that this process is connected to."""

    def nodes(self) -> Sequence[Node]:
        import ray

        return [
            Node(
                id=one["NodeID"],
                name=f"{one['NodeManagerHostname']} {one['NodeManagerAddress']} {one['NodeID'][:8]}",
                cpus=float(one["Resources"].get("CPU", 0)),
                gpus=int(one["Resources"].get("GPU", 0)),
            )
            for one in ray.nodes()
            if one["Alive"]
        ]

    def start(self, order: Mapping[str, Any], slot: Slot) -> NodeSession:
        return RaySession(order, slot)

    def ready(self, sessions: Sequence[NodeSession], timeout_s: float) -> Collection[NodeSession]:
        import ray

        streams = {session.stream: session for session in sessions if isinstance(session, RaySession)}
        done, _ = ray.wait(list(streams), num_returns=1, timeout=timeout_s, fetch_local=False)
        return [streams[stream] for stream in done]
