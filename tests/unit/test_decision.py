"""The one decision: what an interval holds, when a verdict is given, and when it is withheld."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from benchmarks.calibration import autoregressive
from harness.protocol import ON_A_DEVICE
from harness.schema import Protocol
from runner.analysis.results import Estimate, PairedEstimate
from runner.analysis.statistics import Part, paired_speedup
from runner.analysis.verdicts import Limits, Reason, Verdict
from runner.analysis.verdicts.decision import difference, judged, judgment, needed, rounds_can_close, verdict
from runner.analysis.verdicts.dependence import regimes, steadiness, widening
from runner.engine.stopping import LARGEST_BATCH, SMALLEST_BATCH, decide, more_processes, rounds_worth
from tests.factories import known

Floats = np.ndarray
Generator = np.random.Generator
TAU = 0.011

LIMITS = Limits(threshold=0.02, alpha=0.05)


def of(
    logs: Floats, tau: float = TAU, rounds: tuple[int, ...] = (), pool: Part | None = None
) -> PairedEstimate:
    return judged(np.exp(logs), np.ones(logs.size), rounds, tau, pool)


def told(estimate: Estimate) -> Verdict | None:
    return verdict(estimate, estimate.p_value, LIMITS)


def share(repetitions: int, event: Callable[[Generator], bool]) -> float:
    rng = np.random.default_rng(20261122)
    return sum(event(rng) for _ in range(repetitions)) / repetitions


def test_p_is_below_5_percent_exactly_where_the_interval_excludes_1() -> None:
    def agrees(rng: Generator) -> bool:
        estimate = of(rng.normal(0.025, 0.03, 20))
        return (estimate.p_value < 0.05) == (not known(estimate.low) <= 1 <= known(estimate.high))

    assert share(300, agrees) == 1.0


def test_one_process_covers_what_processes_vary_by() -> None:
    def held(rng: Generator, tau: float = TAU) -> bool:
        estimate = of(rng.normal(0, 0.011) + rng.normal(0, 0.03, 20), tau)
        return known(estimate.low) <= 1 <= known(estimate.high)

    assert share(400, held) >= 0.92  # 95 % less three standard errors
    assert share(400, lambda rng: held(rng, 0.0)) <= 0.85


def test_at_the_threshold_faster_is_rare() -> None:
    limit = math.log(1.02)
    assert share(400, lambda rng: told(of(rng.normal(limit, 0.03, 30))) is Verdict.FASTER) <= 0.05


def test_same_needs_the_90_percent_interval_alone() -> None:
    rng = np.random.default_rng(2)
    estimate = of(0.008 + 0.02 * rng.permutation(np.linspace(-1, 1, 30)), 0.0)
    assert known(estimate.high_90) < known(estimate.high)
    narrow = of(rng.normal(0, 0.01, 40), 0.0025)
    assert told(narrow) is Verdict.SAME


# -- dependence ----------------------------------------------------------------------------------
def test_dependence_widens_by_the_effective_number_of_rounds() -> None:
    rng = np.random.default_rng(4)
    noise = autoregressive(0.5, 0.05)
    widths = [widening(noise(rng, 400)) for _ in range(50)]
    assert np.mean(widths) == pytest.approx(math.sqrt(1.5 / 0.5), rel=0.1)
    independent = [widening(rng.normal(0, 1, 40)) for _ in range(400)]
    assert np.mean(np.array(independent) > 1) <= 0.08  # one in twenty by chance
    assert (widening(np.zeros(30)), widening(rng.normal(0, 1, 5))) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("drifts", lambda rng: np.linspace(-0.05, 0.05, 60) + rng.normal(0, 0.02, 60)),
        ("halves", lambda rng: np.repeat([-0.03, 0.03], 30) + rng.normal(0, 0.02, 60)),
        ("regimes", lambda rng: np.tile(np.repeat([-0.04, 0.04], 10), 4)[:70] + rng.normal(0, 0.01, 70)),
    ],
)
def test_the_guard_withholds_a_verdict_and_says_why(name: str, noise: Callable[[Generator], Floats]) -> None:
    rng = np.random.default_rng(5)
    estimates = [of(noise(rng), 0.0025) for _ in range(20)]
    assert sum(told(estimate) is Verdict.UNSTEADY for estimate in estimates) >= 19
    assert all(estimate.unsteady for estimate in estimates)
    if name == "regimes":
        assert "two regimes" in estimates[0].unsteady


def test_independent_rounds_are_hardly_ever_unsteady() -> None:
    for n in (15, 40, 100):
        drawn = share(300, lambda rng, n=n: bool(steadiness([rng.normal(0, 0.03, n)]).unsteady))  # type: ignore[misc]
        assert drawn <= 0.03


def test_what_all_processes_have_in_common_is_found_over_them() -> None:
    """Each process's start is too short to show in its own rounds."""
    rng = np.random.default_rng(7)
    settling = 0.03 * np.exp(-np.arange(15) / 5)
    parts = [settling + rng.normal(0, 0.02, 15) for _ in range(8)]
    assert steadiness(parts).unsteady
    assert sum(bool(steadiness([part]).unsteady) for part in parts) < 8


def test_regimes_need_both_a_gap_and_few_switches() -> None:
    rng = np.random.default_rng(8)
    two = rng.choice([-0.05, 0.05], 60) + rng.normal(0, 0.005, 60)
    assert regimes(two) is None  # apart, but independent from round to round
    levels = known(regimes(np.sort(two)))
    assert levels == pytest.approx((-0.05, 0.05), abs=0.005)
    assert regimes(np.zeros(20)) is None


# -- what it would take, and stopping ---------------------------------------------------------------
def test_what_would_close_a_verdict() -> None:
    """Rounds where the rounds are the larger part, processes where tau is, and both are enough."""
    rng = np.random.default_rng(9)
    noisy = of(math.log(1.04) + 0.08 * rng.permutation(np.linspace(-1, 1, 20)), 0.0025)
    rounds, _ = needed(noisy, LIMITS)
    assert 20 < known(rounds) < 200
    near = of(math.log(1.03) + rng.normal(0, 0.005, 40))
    rounds, processes = needed(near, LIMITS)
    assert rounds is None
    assert not rounds_can_close(near, LIMITS)
    assert known(processes) > 3
    assert needed(of(np.zeros(3)), LIMITS) == (None, None)


def test_an_open_verdict_is_pursued_to_half_the_threshold_and_no_further() -> None:
    # 1.00x with an interval of +-1.9 %: narrow, and "same" does not stand with a margin
    alternating = np.tile([1.0, -1.0], 200) * np.linspace(0.9, 1.1, 400)

    def pairs(n: int, size: float) -> dict[str, tuple[Floats, Floats]]:
        return {"x": (np.exp(size * alternating[:n]), np.ones(n))}

    wide = pairs(20, 0.021)
    assert decide(Protocol(), wide, 1.0).reason == "verdict open"
    assert decide(Protocol(processes=3), wide, 1.0).reason == "precise"  # decided over processes
    assert decide(Protocol(), wide, 1.0, tau={"x": 0.03}).reason == "needs processes"
    assert decide(Protocol(), pairs(90, 0.021), 1.0).rounds == 0


def test_rounds_without_a_common_speedup_are_measured_again_while_time_allows() -> None:
    rng = np.random.default_rng(10)
    drifting = np.linspace(-0.06, 0.06, 60) + rng.normal(0, 0.01, 60)
    pairs = {"x": (np.exp(drifting), np.ones(60))}
    assert "drifts" in decide(Protocol(max_rounds=61, ci_width=0.5), pairs, 1.0, again=True).again
    assert decide(Protocol(max_rounds=61, ci_width=0.5), pairs, 1.0).again == ""
    assert decide(Protocol(max_rounds=61, ci_width=0.5), pairs, 40.0, again=True).again == ""


def test_auto_adds_processes_where_they_close_a_verdict() -> None:
    rng = np.random.default_rng(11)

    def more(center: float, processes: int) -> bool:
        logs = rng.normal(center, 0.02, 20 * processes)
        estimate = of(logs, TAU, (20,) * processes if processes > 1 else ())
        return more_processes(Protocol(), estimate)

    assert not more(0.4, 1)  # clear after one
    assert more(0.0, 1)
    assert more(0.0, 2)
    assert more(0.4, 2)
    assert not more(0.0, 5)
    assert not more(math.log(1.02), 10)
    assert not more(math.log(1.0199), 4)  # no affordable number closes it


def drawn(center: float, sigma: float, count: int) -> Floats:
    """Normal quantiles about a center, in an order without a trend."""
    shares = (np.arange(count) + 0.5) / count
    return center + sigma * np.random.default_rng(7).permutation(special.ndtri(shares))


THREE = drawn(0.03, 0.02, 30) + np.repeat([0.03, -0.03, 0.0], 10)  # processes


@pytest.mark.parametrize(
    ("logs", "tau", "processes", "reason", "closes"),
    [
        (drawn(0.05, 0.01, 5), 0.0, (), Reason.TOO_FEW_ROUNDS, "6 rounds"),
        (drawn(0.04, 0.08, 20), 0.0025, (), Reason.ROUNDS, "about 78 rounds or about 6 processes"),
        (drawn(0.02, 0.01, 40), 0.011, (), Reason.PROCESSES, "more than 50 processes"),
        (THREE, 0.0, (10, 10, 10), Reason.PROCESSES, "about"),
        (np.linspace(-0.1, 0.1, 40) + drawn(0.0, 0.01, 40), 0.0, (), Reason.TREND, "a quieter machine"),
        (drawn(0.04, 0.01, 40), 0.0, (), Reason.FAMILY, "more rounds"),
    ],
)
def test_an_open_verdict_names_the_condition_that_failed(
    logs: Floats, tau: float, processes: tuple[int, ...], reason: Reason, closes: str
) -> None:
    estimate = of(logs, tau, processes)
    q_value = 1.0 if reason is Reason.FAMILY else estimate.p_value
    why = known(judgment(estimate, q_value, LIMITS)[1])
    assert why.reason is reason
    assert why.closes.startswith(closes)


# -- when a job has been measured enough -------------------------------------------------------
DEFAULT = Protocol()
Pairs = dict[str, tuple[list[float], list[float]]]


def wobbling(n: int, spread: float, ratio: float = 1.0) -> Pairs:
    """n pairs whose log-ratios alternate round that of ``ratio`` by ``spread``, none equal to another."""
    return {"x": ([ratio * (1 + spread * (-1) ** i * (1 + i / 100)) for i in range(n)], [1.0] * n)}


@pytest.mark.parametrize(
    ("measured", "took_s", "expected"),
    [
        ({}, 0.0, 10),
        (wobbling(3, 0.5), 500.0, 7),  # the least number of rounds, whatever they take
        (wobbling(10, 0.001), 1.0, SMALLEST_BATCH),  # narrow for the first time is not enough
        ({**wobbling(30, 0.001), "late": wobbling(5, 0.001)["x"]}, 1.0, 5),  # the fewest rounds decide
        (wobbling(97, 0.5), 1.0, 3),
        (wobbling(100, 0.5), 1.0, "most rounds"),
        (wobbling(20, 0.5), 54.0, 2),
        (wobbling(20, 0.5), 58.0, "out of time"),  # 20 rounds took 58 s: no other fits into 60 s
        (wobbling(20, 0.5), 0.2, LARGEST_BATCH),
        (wobbling(15, 0.001), 1.0, "precise"),
        ({**wobbling(15, 0.001), "wide": wobbling(15, 0.3)["x"]}, 1.0, LARGEST_BATCH),
        (wobbling(40, 0.02, 1.019), 1.0, "precise"),  # a narrow interval, with the threshold in it
        (wobbling(20, 0.05), 1.0, LARGEST_BATCH),
        (wobbling(20, 0.05, 1.5), 1.0, "clear verdict"),
        (wobbling(20, 0.05, 0.6), 1.0, "clear verdict"),
        (wobbling(20, 0.05, 1.1), 1.0, LARGEST_BATCH),  # clear, but not by three times its width
        (wobbling(20, 0.3, 9.0), 1.0, LARGEST_BATCH),  # no interval is left very wide
    ],
)
def test_how_many_rounds_come_next_or_why_none(measured: Pairs, took_s: float, expected: int | str) -> None:
    decision = decide(DEFAULT, measured, took_s)
    assert expected == (decision.rounds or decision.reason)


@pytest.mark.parametrize("done", [0, 7, 29, 30])
def test_a_fixed_count_is_exact_whatever_the_noise_and_time(done: int) -> None:
    fixed = dataclasses.replace(DEFAULT, repeat=30)
    assert decide(fixed, wobbling(done, 0.5), 1e6).rounds == min(30 - done, LARGEST_BATCH)


def test_examples_above_have_wide_intervals_and_a_batch_ends_with_the_time() -> None:
    assert known(paired_speedup(*wobbling(20, 0.05)["x"]).half_width) > 0.02
    assert known(paired_speedup(*wobbling(20, 0.3, 9.0)["x"]).half_width) > 0.1
    assert decide(DEFAULT, wobbling(20, 0.1, 1.019), 1.0).within_s == 59.0


# -- differences of two runs, by simulation ----------------------------------------------------
ASSUMED = 0.006
ROUNDS = 20
WITHIN = 0.03  # standard deviation of a round's log-ratio


def one_run(rng: np.random.Generator, truth: float, tau: float) -> PairedEstimate:
    """A run's speedup as the program estimates it: one process, ROUNDS rounds."""
    logs = rng.normal(truth + rng.normal(0, tau), WITHIN, ROUNDS)
    return of(logs, ASSUMED)


def change(first: PairedEstimate, second: PairedEstimate) -> Estimate:
    return known(difference(first, second))


@pytest.mark.parametrize(
    ("tau", "least", "most"), [(0.0, 0.95, 1.0), (ASSUMED, 0.93, 0.97), (0.03, 0.0, 0.7)]
)
def test_intervals_hold_the_truth_if_processes_vary_as_assumed(tau: float, least: float, most: float) -> None:
    """The last row is what the variation is for: without it, most differences of processes look real."""
    rng = np.random.default_rng(5)
    changes = [change(one_run(rng, 0.3, tau), one_run(rng, 0.4, tau)) for _ in range(600)]
    assert least <= np.mean([change.within(math.exp(0.1)) for change in changes]) <= most


def test_the_variation_of_several_processes_is_in_their_interval() -> None:
    logs = np.random.default_rng(7).normal(0.3, WITHIN, 3 * ROUNDS)
    several = of(logs, ASSUMED, (ROUNDS,) * 3)
    assert change(several, several).error == pytest.approx(math.sqrt(2) * known(several.error))
    alone = one_run(np.random.default_rng(7), 0.3, 0.0)
    assert change(alone, alone).error == pytest.approx(math.sqrt(2) * math.hypot(known(alone.error), ASSUMED))


@pytest.mark.parametrize(
    ("by", "noise", "tau", "reason"),
    [
        (0.0, 0.004, 0.003, None),  # same
        (0.2, 0.004, 0.003, None),  # improved
        (0.0, 0.1, 0.003, Reason.ROUNDS),
        (0.01, 0.004, 0.011, Reason.PROCESSES),
    ],
)
def test_an_open_change_says_why(by: float, noise: float, tau: float, reason: Reason | None) -> None:
    centered = np.random.default_rng(1).normal(0, noise, ROUNDS)
    logs = centered - np.median(centered)
    first, second = (of(logs + log, tau) for log in (0.0, by))
    moved = change(first, second)
    word, why = judgment(moved, moved.p_value, LIMITS)
    assert (word, why and why.reason) == (told(moved), reason)


@pytest.mark.parametrize(
    ("done", "took_s", "rounds", "within_s"),
    [
        *((0, 0.0, 6, 5.0), (4, 70.0, 2, 5.0)),  # the first six rounds, whatever they take
        *((6, 57.0, 4, 3.0), (6, 20.0, 4, 5.0), (6, 60.0, 0, 1e9), (15, 58.0, 0, 1e9)),
    ],
)
def test_on_a_device_batches_are_bounded_and_the_time_is_obeyed_from_the_sixth_round(
    done: int, took_s: float, rounds: int, within_s: float
) -> None:
    decision = decide(DEFAULT, wobbling(done, 0.5), took_s, pace=ON_A_DEVICE)
    assert (decision.rounds, round(decision.within_s)) == (rounds, within_s)
    assert decision.reason == ("at least" if rounds else "out of time")
    fixed = decide(Protocol(repeat=30), wobbling(done, 0.5), took_s, pace=ON_A_DEVICE)
    assert (fixed.rounds, fixed.within_s) == (min(30 - done, LARGEST_BATCH), 5.0)


def test_a_process_that_pursues_a_verdict_has_the_rounds_that_are_worth_their_time() -> None:
    """15 s before its rounds, 0.3 s a round, 3 % and 1 %: 21 rounds (Kalibera & Jones 2013)."""
    rng = np.random.default_rng(12)
    pairs = {"x": (np.exp(rng.normal(0.015, 0.03, 400)), np.ones(400))}
    estimate = of(np.log(pairs["x"][0]), 0.01)
    assert rounds_worth(estimate, 15.0, 0.3) == pytest.approx(21, rel=0.2)
    for count, reason in ((15, "not yet precise"), (40, "a new process says more")):
        some = {"x": (pairs["x"][0][:count], np.ones(count))}
        decided = decide(Protocol(ci_width=0.001), some, 0.3 * count, {"x": 0.01}, prepared_s=15.0)
        assert decided.reason == reason
