"""The paired loop with a fake clock: its exact order of events and exact digits."""

import contextlib
import gc
import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from harness.schema import Job, Protocol, Round
from harness.timing.measure import (
    Instruments,
    enough_iterations,
    has_settled,
    iterations_for,
    measure_round,
    placement,
    quiet_collector,
    round_order,
)
from tests.factories import make_job

STEP_S = {"baseline": 0.5, "fast": 0.25, "slow": 2.0}
FAULTS = {"baseline": 8, "fast": 0, "slow": 3}  # of a step
VARIANTS = tuple(STEP_S)


class FakeMachine:
    """Time and faults pass only while a step runs; every event is kept."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._now = 100.0
        self._faults = 5000

    def step(self, name: str) -> Callable[[], None]:
        def run() -> None:
            self.events.append(f"step {name}")
            self._now += STEP_S[name]
            self._faults += FAULTS[name]

        return run

    def instruments(self) -> Instruments:
        def synchronize() -> None:
            self.events.append("synchronize")

        def clock() -> float:
            self.events.append("clock")
            return self._now

        def minor_faults() -> int:
            self.events.append("faults")
            return self._faults

        return Instruments(
            clock=clock,
            synchronize=synchronize,
            reseed=lambda: self.events.append("reseed"),
            minor_faults=minor_faults,
            announce=lambda variant: self.events.append(f"announce {variant}"),
        )


def test_one_sample_is_announced_seeded_and_synchronized_on_both_sides_in_this_order() -> None:
    fake = FakeMachine()
    measure_round({"slow": fake.step("slow")}, ("slow",), 2, fake.instruments())
    before, after = "announce slow, reseed, synchronize, faults, clock", "synchronize, clock, faults"
    assert ", ".join(fake.events) == f"{before}, step slow, step slow, {after}"


# -- order -----------------------------------------------------------------------
def test_the_order_follows_from_seed_and_round_alone() -> None:
    first = [round_order(VARIANTS, Protocol(seed=1337), index) for index in range(50)]
    assert [round_order(VARIANTS, Protocol(seed=1337), index) for index in reversed(range(50))] == first[::-1]
    assert [round_order(VARIANTS, Protocol(seed=1338), index) for index in range(50)] != first
    assert [round_order(VARIANTS, Protocol(seed=1337, process=1), index) for index in range(50)] != first
    # A record's order can be made again from its seed, by later versions and other Pythons, too.
    assert [round_order(VARIANTS, Protocol(seed=1337), index) for index in range(4)] == [
        *(("fast", "slow", "baseline"), ("baseline", "slow", "fast"), ("fast", "baseline", "slow")),
        ("slow", "baseline", "fast"),
    ]


@pytest.mark.parametrize("seed", [0, 1337])
def test_orders_are_uniform_over_permutations(seed: int) -> None:
    rounds = 6000
    counts = Counter(round_order(VARIANTS, Protocol(seed=seed), index) for index in range(rounds))
    assert set(counts) == set(itertools.permutations(VARIANTS))
    expected = rounds / 6
    # a permutation and its reverse come together: half as many independent draws of 3 kinds
    chi_squared = sum((count - expected) ** 2 / expected for count in counts.values()) / 2
    assert chi_squared < 13.9  # 2 degrees of freedom: exceeded by chance once in a thousand


def a_job(name: str = "m", process: int = 0) -> Job:
    return make_job(name, candidates=("fast", "slow"), protocol=Protocol(process=process))


def test_placement_is_balanced_over_processes_and_drawn_for_each_model() -> None:
    for process in range(0, 20, 2):
        first, other = (placement(VARIANTS, a_job(process=p)) for p in (process, process + 1))
        assert first == other[::-1]
    counts = Counter(placement(VARIANTS, a_job(f"model {number}")) for number in range(600))
    assert set(counts) == set(itertools.permutations(VARIANTS))
    assert max(counts.values()) < 150


# -- iterations and settling --------------------------------------------------------
@pytest.mark.parametrize(
    ("step_s", "sample_s", "expected"),
    [
        *((0.02, 0.02, 1), (0.0199, 0.02, 2), (0.003, 0.02, 7), (1e-9, 0.02, 1000), (0.0, 0.02, 1000)),
        (0.5, 0.0, 1),
    ],
)
def test_iterations_make_a_sample_long_enough(step_s: float, sample_s: float, expected: int) -> None:
    assert iterations_for(step_s, sample_s) == expected
    assert iterations_for(step_s, sample_s, most=17) == min(expected, 17)


def test_short_steps_are_counted_by_steps_in_a_row() -> None:
    """Alone 40 us, in a row 5 us: samples of 10 ms need 2,000 of them, not 250."""
    asked = []

    def again(iterations: int) -> Round:
        asked.append(iterations)
        return rounds_of((5e-6, 0.0))[0]

    assert (enough_iterations(rounds_of((40e-6, 0.0)) * 2, again, 0.01), asked) == (2000, [250, 2000])


def test_the_slowest_variant_limits_the_steps_of_a_sample() -> None:
    for slow, needed in ((20e-6, 10_000), (1e-4, 5000), (1.0, 1000)):  # 5000: half a second
        both = Round(order=("a", "b"), seconds={"a": 1e-6, "b": slow}, minor_faults={})
        assert enough_iterations([both, both], lambda _, both=both: both, 0.01) == needed  # type: ignore[misc]


def rounds_of(*figures: tuple[float, float]) -> list[Round]:
    """Rounds of one variant from (seconds, minor faults)."""
    return [Round(order=("v",), seconds={"v": s}, minor_faults={"v": f}) for s, f in figures]


@pytest.mark.parametrize(
    ("figures", "settled"),
    [
        ([(1.0, 0)], False),  # too few rounds to say
        ([(0.09, 0)] * 2, False),
        ([(0.1, 0)] * 2, True),  # long ones cost much
        ([(1.0, 0)] * 3, True),
        ([(9.0, 9000), (1.0, 100), (1.0, 100)], True),  # only the last two count
        ([(1.0, 0), (1.0, 1000), (1.0, 901)], True),  # fell by less than a tenth
        ([(1.0, 0), (1.0, 1000), (1.0, 899)], False),
        ([(1.0, 0), (1.0, 100), (1.0, 36)], True),  # 64 faults are nothing
        ([(1.0, 0), (1.0, 100), (1.0, 35)], False),
        ([(1.0, 0), (1.0, 0), (0.75, 0)], True),
        ([(1.0, 0), (1.0, 0), (0.74, 0)], False),
        ([(1.0, 0), (1.0, 0), (3.0, 500)], True),  # getting worse is not settling
    ],
)
def test_warm_up_ends_when_nothing_falls(figures: list[tuple[float, float]], *, settled: bool) -> None:
    assert has_settled(rounds_of(*figures)) is settled


@pytest.mark.parametrize(
    ("candidate", "settled"),
    [
        *(((1.0, 1.0, 1.0), True), ((1.0, 1.0, 0.5), False), ((1.0, 0.94, 0.88), False)),
        ((1.0, 0.88, 0.94), True),
    ],
)
def test_one_unsettled_variant_keeps_all_warming_up(candidate: tuple[float, ...], *, settled: bool) -> None:
    """Also one whose ratio to the baseline moves one way, by more than a tenth in all."""
    both = [{"baseline": 1.0, "candidate": s} for s in candidate]
    none = {"baseline": 0.0, "candidate": 0.0}
    assert has_settled([Round(order=(*s,), seconds=s, minor_faults=none) for s in both]) is settled


# -- garbage collection ----------------------------------------------------------------
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.series
def test_the_collector_is_off_inside_and_as_before_afterwards(*, enabled: bool, fails: bool) -> None:
    if not enabled:
        gc.disable()
    try:
        with contextlib.suppress(RuntimeError), quiet_collector():
            assert not gc.isenabled()
            if fails:
                raise RuntimeError
        assert gc.isenabled() is enabled
        assert gc.get_freeze_count() == 0
    finally:
        gc.enable()
