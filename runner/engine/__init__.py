"""Jobs through workers, and what a job gets from outside: its place, its watcher, its gate."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from harness.schema import Job
from harness.worker.status_page import Activity
from runner.store.calibrations import Calibration

Reproduce = Callable[[Job, Sequence[str]], str]
"""Returns the command that measures these candidates of a job again."""


class Pause:
    """Between two processes of a job: other jobs may go on first."""


class Watcher(Protocol):
    """Receives each worker's activity, the number of rounds, and each candidate's pairs."""

    def activity(self, activity: Activity) -> None: ...

    def rounds(self, done: int, pairs: Mapping[str, tuple[list[float], list[float]]]) -> None: ...


class Quiet:
    """A ``Watcher`` that ignores everything."""

    def activity(self, activity: Activity) -> None: ...

    def rounds(self, done: int, pairs: Mapping[str, tuple[list[float], list[float]]]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The name of each environment's log in records ("": the runner's own), and the job's folder."""

    logs: Mapping[str, str]
    folder: Path | None = None  # for exports from one environment to the others


class Gate(Protocol):
    """Keeps the jobs of one device apart. ``runner.engine.executors.gate`` implements it."""

    @property
    def beside(self) -> int:
        """The most other jobs that prepared at the same time as this job since it began."""

    @property
    def waited_s(self) -> float:
        """How long this job has waited for other jobs."""

    def preparing(self) -> AbstractContextManager[None]:
        """Waits until the job may start its workers and compile. Others may do the same beside it."""

    def timing(self) -> AbstractContextManager[float]:
        """Waits until nothing else runs. The value is the seconds that the job has waited."""

    def asks_to_be_alone(self) -> bool:
        """Whether other jobs held memory, too. If so, the next ``preparing`` waits until it is alone."""


class Ungated:
    """The gate of a job that runs alone."""

    beside = 0
    waited_s = 0.0

    def preparing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def timing(self) -> AbstractContextManager[float]:
        return nullcontext(0.0)

    def asks_to_be_alone(self) -> bool:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """What a job gets from outside. ``candidates`` are those without a record.

    ``stop()`` says whether the user wants to end after the current rounds.
    """

    candidates: tuple[str, ...]
    place: Place
    reproduce: Reproduce
    watcher: Watcher = field(default_factory=Quiet)
    stop: Callable[[], bool] = lambda: False
    gate: Gate = field(default_factory=Ungated)
    calibrations: tuple[Calibration, ...] = ()  # of the user
    clock: Callable[[], float] = time.monotonic
