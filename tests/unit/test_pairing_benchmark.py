"""The benchmark of orders and pairing: its order of samples, and its tables on samples with a known truth."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks import pairing, pairing_tables
from benchmarks.pairing import ORDERS, PAIRS, SIDES, Block
from harness.schema import Round


def ticking(order: tuple[str, ...]) -> Round:
    """The second copy is twice as slow, by the name."""
    return Round(order=order, seconds={side: 1.0 + SIDES.index(side) for side in order}, minor_faults={})


@pytest.mark.parametrize("order", ORDERS)
def test_a_block_has_as_many_samples_of_both_and_knows_whose_they_are(order: str) -> None:
    block = pairing.measured("m", order, 0, 1, ticking)
    first, second = block.columns()
    assert first == [1.0] * PAIRS
    assert second == [2.0] * PAIRS


def test_orders_are_what_they_are_called() -> None:
    sides = {order: pairing.measured("m", order, 3, 1, ticking).sides for order in ORDERS}
    assert sides["sequence"] == (0,) * PAIRS + (1,) * PAIRS
    assert sides["alternating"] == (0, 1) * PAIRS
    pairs = Counter(zip(sides["random"][::2], sides["random"][1::2], strict=True))
    assert set(pairs) == {(0, 1), (1, 0)}
    assert sides["random"] != pairing.measured("m", "random", 4, 1, ticking).sides


def drifting(order: str, repetition: int, drift: float) -> Block:
    """A step against itself on a machine that slows down by ``drift`` from sample to sample, 1 % noise."""
    sides = tuple(SIDES.index(side) for group in pairing.turns(order, repetition) for side in group)
    dice = np.random.default_rng(repetition)
    times = np.exp(drift * np.arange(2 * PAIRS) + 0.01 * dice.standard_normal(2 * PAIRS))
    return Block(
        model="m", repetition=repetition, order=order, iterations=1, sides=sides, seconds=tuple(times)
    )


def test_drift_is_a_difference_in_sequence_and_none_in_random_order() -> None:
    shares = {}
    for order in ORDERS:
        pairs = pairing_tables.whole([drifting(order, n, 0.01) for n in range(100)])
        shares[order] = [float(np.mean(test(*pairs) < 0.05)) for test in pairing_tables.TESTS.values()]
    assert min(shares["sequence"]) == 1.0
    assert shares["alternating"][2] > 0.5  # always second, always a little slower
    assert shares["random"][2] < 0.12


def test_without_drift_every_test_keeps_its_promise() -> None:
    pairs = pairing_tables.whole([drifting("random", n, 0.0) for n in range(400)])
    for test in pairing_tables.TESTS.values():
        assert 0.02 < float(np.mean(test(*pairs) < 0.05)) < 0.09


def test_parts_in_sequence_are_those_next_to_each_other() -> None:
    block = drifting("sequence", 0, 1.0)
    first, second = pairing_tables.parts([block])
    assert first.shape == second.shape == (1, pairing_tables.SHORT)
    assert first.max() < second.min()
    assert pairing_tables.parts([drifting("random", 0, 0.0)])[0].shape == (3, pairing_tables.SHORT)


def test_fewer_rounds_are_needed_for_a_larger_difference_and_with_pairs() -> None:
    first, second = (side.ravel() for side in pairing_tables.whole([drifting("random", 0, 0.01)]))
    needed = {
        name: [pairing_tables._needed(first, second, test, effect) for effect in (0.02, 0.05)]
        for name, test in pairing_tables.TESTS.items()
    }
    paired, unpaired = needed["paired signed-rank"], needed["t-test (Welch)"]
    assert int(paired[1]) <= int(paired[0]) <= 20
    assert "over" in unpaired[0] or int(unpaired[0]) > 5 * int(paired[0])
