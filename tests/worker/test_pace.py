"""The seconds of a job on the fake accelerator, in total and from a stop to its record; and its load."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.schema import Job
from harness.timing import warm_up
from runner.engine import JobContext, Place
from runner.engine.job_run import JobRun
from runner.engine.worker_session import Worker
from tests.accelerator import Accelerator, built, job, times
from tests.factories import Patch
from torchduet.caller import LocalWorker


class Timed:
    """A job on the fake device. ``began``: when its rounds' load began, and its calls, by name."""

    def __init__(self, machine: Accelerator, step_s: float, folder: Path, stop_s: float = 1e9) -> None:
        self.machine = machine
        self.began: dict[str, float] = {}
        compilers = {"fast": times(machine, 0.5), "plain": times(machine, 1.0)}
        model = {"forward_s": step_s / 3, "backward_s": step_s * 2 / 3}
        asked = job(*compilers, min_sample_s=0.01)

        @contextmanager
        def launch(_: Job) -> Iterator[Worker]:
            yield self._noting(LocalWorker(lambda _: built(machine, **model), compilers, folder / "log", str))

        context = JobContext(
            candidates=tuple(compilers),
            place=Place(logs={"": "log"}),
            reproduce=lambda *_: "",
            stop=lambda: machine.now >= self.began.get("warm_up", 1e9) + stop_s,
            clock=machine.clock,
        )
        self.records = list(JobRun(asked, launch, context).run())
        self.ended = machine.now

    def _noting(self, worker: LocalWorker) -> LocalWorker:
        call = worker.call

        def noted(request: Any, deadline: float) -> dict[str, Any]:
            self.began.setdefault(request["call"], self.machine.now)
            return call(request, deadline)

        worker.call = noted  # type: ignore[method-assign]
        return worker


@pytest.mark.slow
@pytest.mark.parametrize("step_s", [0.045, 0.25])
def test_a_job_of_long_steps_takes_half_a_minute(machine: Accelerator, tmp_path: Path, step_s: float) -> None:
    """And stopped at any moment after that, it has its records in ten seconds."""
    whole = Timed(machine, step_s, tmp_path)
    assert {len(known.samples or ()) >= 10 for known in whole.records} == {True}
    lasted_s = whole.ended - whole.began["warm_up"]
    assert lasted_s <= 30
    for stop_s in random.Random(1).choices(range(int(lasted_s)), k=4):
        machine.restart()
        stopped = Timed(machine, step_s, tmp_path, stop_s)
        assert stopped.ended - stopped.began["warm_up"] - stop_s <= 10
        assert {record.status.passed for record in stopped.records} == {True}
        assert len(stopped.records) == 2


@pytest.mark.parametrize("step_s", [0.004, 0.03, 0.12])
@pytest.mark.parametrize("first", ["quiet", "hungry"])
def test_the_load_settles_by_the_power_of_a_second(monkeypatch: Patch, step_s: float, first: str) -> None:
    """As NVML has it, a new one every tenth of a second; the variants take 300 and 600 W."""
    spent: list[tuple[float, float]] = []  # seconds and watts of each step

    def now() -> float:
        return sum(seconds for seconds, _ in spent)

    def reading() -> tuple[float, float]:
        joules, begin, window = 0.0, 0.0, int(now() / 0.1) * 0.1
        for seconds, watts in spent:
            joules += watts * max(0.0, min(begin + seconds, window) - max(begin, window - 1.0))
            begin += seconds
        return 1980.0, joules

    monkeypatch.setattr(time, "perf_counter", now)
    watts = {"quiet": 300.0, "hungry": 600.0}
    names = sorted(watts, reverse=first == "quiet")
    steps = {name: partial(spent.append, (step_s, watts[name])) for name in names}
    lasted_s = warm_up.heat(steps, lambda: None, reading, lambda _: None)
    assert 1.0 + warm_up.MIXED_S <= lasted_s < warm_up.MOST_S
    assert {watts for _, watts in spent} == {300.0, 600.0}
