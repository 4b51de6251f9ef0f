"""Jobs through workers, and what a job gets from outside: its place, who hears of it, its gate."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.schema import Job
from harness.worker.status_page import Activity
from runner.engine.gate import DeviceGate, Seat

Reproduce = Callable[[Job, Sequence[str]], str]
"""Returns the command that measures these candidates of a job again."""

Pairs = Mapping[str, tuple[list[float], list[float]]]
"""Candidate -> (baseline seconds, candidate seconds), one value of each per round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The name of each environment's log in records ("": the runner's own), and the job's folder."""

    logs: Mapping[str, str]
    folder: Path | None = None  # for exports from one environment to the others


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """What a job gets from outside. ``candidates`` are those without a record.

    ``preview`` hears a few rounds of the first candidate before the others are compiled; None: nobody does.
    ``doing`` hears each worker's activity, ``timed`` the number of rounds and the pairs so far. ``stop()``
    says whether the user wants to end after the current rounds.
    """

    candidates: tuple[str, ...]
    place: Place
    reproduce: Reproduce
    doing: Callable[[Activity], object] = lambda _: None
    timed: Callable[[int, Pairs], object] = lambda *_: None
    preview: Callable[[Pairs], object] | None = None
    stop: Callable[[], bool] = lambda: False
    gate: Seat = field(default_factory=lambda: DeviceGate().seat())
    clock: Callable[[], float] = time.monotonic
