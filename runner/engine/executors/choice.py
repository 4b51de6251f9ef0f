"""Opens the executor that ``--executor`` names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runner.engine import Reproduce
from runner.engine.executors import Executor
from runner.engine.executors.local import LocalExecutor
from runner.store.calibrations import read_calibrations

if TYPE_CHECKING:
    from harness.schema import Job
    from runner.plan.config import Where


@contextmanager
def opened(where: Where, jobs: Sequence[Job], reproduce: Reproduce) -> Iterator[Executor]:
    """The executor, ready to run these jobs. Raises ``UsageError`` if it cannot run them."""
    if where.executor == "ray":
        from runner.engine.executors.ray_cluster import connected

        with connected(where.ray_address, jobs, reproduce) as cluster:
            yield cluster
        return
    yield LocalExecutor(
        reproduce,
        fork=where.fork_server,
        ahead=where.prepare_ahead,
        calibrations=read_calibrations(),
    )
