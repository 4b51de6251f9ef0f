"""When a job has been measured enough."""

import dataclasses

import pytest

from harness.schema import Protocol
from runner.analysis.statistics import paired_speedup
from runner.engine.stopping import LARGEST_BATCH, SMALLEST_BATCH, decide
from tests.factories import known

DEFAULT = Protocol()
Pairs = dict[str, tuple[list[float], list[float]]]


def half_width(baseline: list[float], candidate: list[float]) -> float:
    return known(paired_speedup(baseline, candidate).half_width)


def pairs(n: int, spread: float) -> Pairs:
    """n pairs whose log-ratios alternate round 0 by ``spread``, none equal to another."""
    return {"x": ([1 + spread * (-1) ** i * (1 + i / 100) for i in range(n)], [1.0] * n)}


@pytest.mark.parametrize(
    ("measured", "took_s", "expected"),
    [
        ({}, 0.0, 10),
        (pairs(4, 0.1), 0.0, 6),
        (pairs(3, 0.5), 500.0, 7),  # the least number of rounds, whatever they take
        (pairs(10, 0.001), 1.0, SMALLEST_BATCH),  # narrow for the first time is not enough
        ({**pairs(30, 0.001), "late": pairs(5, 0.001)["x"]}, 1.0, 5),  # the fewest rounds decide
        (pairs(97, 0.5), 1.0, 3),
        (pairs(100, 0.5), 1.0, "most rounds"),
        (pairs(20, 0.5), 54.0, 2),
        (pairs(20, 0.5), 58.0, "out of time"),  # 20 rounds took 58 s: no other fits into 60 s
    ],
)
def test_how_many_rounds_come_next_or_why_none(measured: Pairs, took_s: float, expected: int | str) -> None:
    found = decide(DEFAULT, measured, took_s)
    assert expected == (found.rounds or found.reason)


@pytest.mark.parametrize("done", [0, 7, 29, 30])
def test_a_fixed_count_is_exact_whatever_the_noise_and_time(done: int) -> None:
    fixed = dataclasses.replace(DEFAULT, repeat=30)
    assert decide(fixed, pairs(done, 0.5), 1e6).rounds == min(30 - done, LARGEST_BATCH)


def test_stops_when_every_candidate_was_and_is_precise() -> None:
    assert decide(DEFAULT, pairs(15, 0.001), 1.0).reason == "precise"
    both = {**pairs(15, 0.001), "y": pairs(15, 0.3)["x"]}
    assert decide(DEFAULT, both, 1.0).rounds > 0


def far(n: int, spread: float, ratio: float) -> Pairs:
    """Pairs as in ``pairs``, the candidate ``ratio`` times as fast."""
    baseline, candidate = pairs(n, spread)["x"]
    return {"x": ([ratio * second for second in baseline], candidate)}


def test_stops_when_no_round_could_change_the_verdict() -> None:
    wide = 0.05
    assert half_width(*far(20, wide, 1.0)["x"]) > 0.02
    assert decide(DEFAULT, far(20, wide, 1.0), 1.0).rounds > 0
    assert decide(DEFAULT, far(20, wide, 1.5), 1.0).reason == "clear verdict"
    assert decide(DEFAULT, far(20, wide, 0.6), 1.0).reason == "clear verdict"
    assert decide(DEFAULT, far(20, wide, 1.1), 1.0).rounds > 0  # clear, but not by three times its width


def test_but_an_interval_is_never_left_very_wide() -> None:
    assert half_width(*far(20, 0.3, 9.0)["x"]) > 0.1
    assert decide(DEFAULT, far(20, 0.3, 9.0), 1.0).rounds > 0


def test_an_open_verdict_ends_with_the_rounds_or_the_time() -> None:
    open_verdict = far(40, 0.02, 1.019)  # a narrow interval, with the threshold in it
    assert decide(DEFAULT, open_verdict, 1.0).reason == "precise"
    assert decide(DEFAULT, far(20, 0.1, 1.019), 59.9).reason == "out of time"
    assert decide(DEFAULT, far(20, 0.1, 1.019), 1.0).within_s == 59.0


def test_batches_grow_with_what_is_missing() -> None:
    assert decide(DEFAULT, pairs(20, 0.5), 0.2).rounds == LARGEST_BATCH
    assert SMALLEST_BATCH <= decide(DEFAULT, pairs(20, 0.045), 0.2).rounds <= LARGEST_BATCH
