"""Opens the executor that ``--executor`` names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from harness.schema import Job
from runner.engine.executors import Executor
from runner.engine.job_run import Reproduce


class Where(Protocol):
    """Where jobs run: see ``runner.plan.config.Where``, which has these fields."""

    @property
    def executor(self) -> str: ...
    @property
    def ray_address(self) -> str | None: ...
    @property
    def fork_server(self) -> bool: ...
    @property
    def time_budget_s(self) -> float | None: ...
    @property
    def prepare_ahead(self) -> int | None: ...


@contextmanager
def opened(where: Where, jobs: Sequence[Job], reproduce: Reproduce) -> Iterator[Executor]:
    """The executor, ready to run these jobs. Raises ``UsageError`` if it cannot run them."""
    if where.executor == "ray":
        from runner.engine.executors.ray_cluster import connected

        with connected(where.ray_address, jobs, reproduce, where.prepare_ahead or 1) as cluster:
            yield cluster
        return
    from runner.engine.executors.local import LocalExecutor

    yield LocalExecutor(
        reproduce, fork=where.fork_server, time_budget_s=where.time_budget_s, ahead=where.prepare_ahead
    )
