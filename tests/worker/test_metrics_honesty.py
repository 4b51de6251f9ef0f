"""Turning metrics on does not move the paired speedup beyond its interval; a metric that stays on would."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from harness import metrics
from harness.program import Compiled, Program
from harness.schema import BASELINE, Case, Extras, Job, Mode, Protocol
from harness.worker.session import Session
from harness.workload import Workload
from runner.analysis.estimate import PairedEstimate
from runner.analysis.statistics import paired_speedup
from tests.worker.planted import backends, silent

pytestmark = pytest.mark.long
BATCHES, ROUNDS = 8, 5
EVERYTHING = Extras(explain=True, profiler_trace=True)


def in_pieces(program: Program) -> Compiled:
    """A candidate of many small operations: what stays on costs it more than eager's few large ones."""
    module: Any = program.module

    def forward(args: Any, kwargs: Any, target: Any) -> tuple[None, torch.Tensor]:
        return None, torch.cat([module(part) for part in args[0].chunk(64)])

    return Compiled(forward=forward, region="forward", compiler_calls=lambda: 1)


def estimates(monkeypatch: pytest.MonkeyPatch, on: Any) -> tuple[PairedEstimate, PairedEstimate]:
    """The speedup with metrics off and on, in one session, batches of rounds in alternation."""
    monkeypatch.setattr("harness.worker.session.load_backend", backends(pieces=in_pieces))
    case = Case(suite="none", name="m", mode=Mode.INFERENCE, batch_size=512, published_batch_size=512)
    protocol = Protocol(min_sample_s=0.002, threads=1, accuracy=False)
    job = Job(
        case=case,
        device="cpu",
        dtype="float32",
        candidates=("pieces",),
        protocol=protocol,
        extras=EVERYTHING,
    )
    work = Workload(module=torch.nn.Linear(256, 256), args=(torch.randn(512, 256),))
    session = Session(job, silent, lambda _: work)
    session.open()
    session.prepare("pieces")
    session.warm_up()
    times: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for batch in range(2 * BATCHES):
        is_on = batch % 2 == 1
        with monkeypatch.context() as patch:
            patch.setattr(metrics, "_modules", on if is_on else lambda *_: iter(()))
            rounds, _ = session.measure(ROUNDS)
        times[is_on] += [(one.seconds[BASELINE], one.seconds["pieces"]) for one in rounds]
    off, with_them = (paired_speedup(*zip(*times[which], strict=True)) for which in (False, True))
    return off, with_them


def moved(off: PairedEstimate, on: PairedEstimate) -> bool:
    """Whether their intervals, each stretched by half, have nothing in common: by luck, in one of 10,000."""

    def stretched(one: PairedEstimate) -> tuple[float, float]:
        assert one.ci_low is not None
        assert one.ci_high is not None
        middle, low, high = (math.log(x) for x in (one.speedup, one.ci_low, one.ci_high))
        return middle - 1.5 * (middle - low), middle + 1.5 * (high - middle)

    (low, high), (other_low, other_high) = stretched(off), stretched(on)
    return high < other_low or other_high < low


def test_metrics_do_not_move_the_speedup(monkeypatch: pytest.MonkeyPatch) -> None:
    off, on = estimates(monkeypatch, metrics._modules)
    assert not moved(off, on), (off, on)


def test_one_that_stayed_on_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def staying_on(device: torch.device, numbers: dict[str, Any]) -> Iterator[None]:
        with FlopCounterMode(display=False):
            yield

    one = SimpleNamespace(observe=staying_on)
    off, on = estimates(monkeypatch, lambda *_: iter([("staying_on", one)]))
    assert moved(off, on), (off, on)
