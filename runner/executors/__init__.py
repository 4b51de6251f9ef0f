"""Where jobs run: on this machine (``local``), or on the nodes of a Ray cluster (``ray_cluster``).

An executor takes what is missing of a plan and tells, in the caller's own thread, what happens:
a job starts, is at something, has a final record, ends. The caller alone writes records.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from harness.schema import Job, Record
from harness.status_page import Activity

if TYPE_CHECKING:
    from runner.config import Where

Pairs = Mapping[str, tuple[list[float], list[float]]]
Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A job, and those of its candidates that have no record yet."""

    job: Job
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The job's first worker is about to start."""

    job: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What the job's worker is at."""

    job: Job
    activity: Activity


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Rounds so far, and (baseline, candidate) seconds of each candidate."""

    job: Job
    done: int
    pairs: Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The job has all its records, or the run was stopped."""

    job: Job


Event = Started | Doing | Timed | Record | Ended
Events = Generator[Event, None, None]


class Cases(Protocol):
    """Where a job's log goes: ``runner.run_folder.RunFolder`` is the real one."""

    def open_case(self, job: Job) -> Path: ...

    def relative(self, path: Path) -> str: ...


def by_kind(work: Sequence[Work]) -> dict[str, list[Work]]:
    """The work for each kind of device ("cpu", "cuda"), in the order given."""
    kinds: dict[str, list[Work]] = {}
    for one in work:
        kinds.setdefault(one.job.device.split(":", maxsplit=1)[0], []).append(one)
    return kinds


class Executor(Protocol):
    """Runs work and yields what happens.

    Work that is asked for has one record for each candidate in the end, unless ``stop()`` became
    true: then the rounds under way end and nothing new begins. A record is yielded as soon as it is
    final. Closing the generator ends everything at once.
    """

    def run(self, work: Sequence[Work], cases: Cases, stop: Stop) -> Events: ...


@contextmanager
def opened(where: Where, jobs: Sequence[Job]) -> Iterator[Executor]:
    """The executor asked for, ready to run these jobs. ``UsageError`` when it cannot run them."""
    if where.executor == "ray":
        from runner.executors.ray_cluster import connected

        with connected(where.ray_address, jobs) as cluster:
            yield cluster
        return
    from runner.executors.local import LocalExecutor

    yield LocalExecutor(fork=where.fork_server, time_budget_s=where.time_budget_s)
