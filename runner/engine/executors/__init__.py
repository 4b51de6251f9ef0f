"""Where jobs run: on this machine (``local``), or on the nodes of a Ray cluster (``ray_cluster``).

An executor takes attempts and yields events in the caller's thread: a job starts, changes its activity, has
a final record, ends. Only the caller writes records.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.schema import Job, Record
from harness.worker.status_page import Activity
from runner.engine import Pairs
from runner.engine.experiments import Attempt

Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An attempt, and the records of its job so far. ``preview``: a first number is wanted at once."""

    attempt: Attempt
    records: tuple[Record, ...] = ()
    preview: bool = False

    @property
    def job(self) -> Job:
        return self.attempt.job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    job: Job


class Started(JobEvent):
    """The attempt's first worker is about to start."""


class JobEnded(JobEvent):
    """The attempt has all of its records, or the run was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing(JobEvent):
    """The current activity of the job's worker. ``prepared``: the job waits until it may be timed alone."""

    activity: Activity


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed(JobEvent):
    """The number of rounds so far, and the (baseline, candidate) seconds of each candidate."""

    done: int
    pairs: Pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Previewed(JobEvent):
    """The (baseline, candidate) seconds of the first candidate, before the others are compiled."""

    pairs: Pairs


Event = Started | Doing | Previewed | Timed | Record | JobEnded
Events = Generator[Event, None, None]


class Cases(Protocol):
    """Gives each job its log. The implementation is ``runner.store.run_folder.RunFolder``."""

    def open_case(self, job: Job) -> Path: ...

    def relative(self, path: Path) -> str: ...


def grouped(work: Sequence[Work], key: Callable[[str], str]) -> list[list[Work]]:
    """The work in the given order, with a list for each ``key(device)``."""
    groups: dict[str, list[Work]] = {}
    for item in work:
        groups.setdefault(key(item.job.device), []).append(item)
    return list(groups.values())


class Executor(Protocol):
    """Runs work and yields events.

    Every candidate of a timed attempt gets exactly one record, unless ``stop()`` becomes true: then the
    current rounds are finished and nothing new begins. A record is yielded when it is final. Closing the
    generator ends all workers at once.
    """

    def run(self, work: Sequence[Work], cases: Cases, stop: Stop) -> Events: ...
