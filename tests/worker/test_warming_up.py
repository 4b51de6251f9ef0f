"""How long warm-up lasts, and whether its last round counts."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness.schema import BASELINE, Round
from harness.timing.warm_up import MOST_ROUNDS, warm_up
from harness.worker.session import Session
from tests.worker.planted import opened, workload


class Compiling:
    """Stands for ``Recompilations``: in round i something was compiled where ``rounds`` holds i."""

    def __init__(self, *rounds: int) -> None:
        self._rounds = rounds
        self._now = -1

    def start(self) -> None:
        self._now += 1

    def found(self) -> dict[str, int]:
        return {"inductor": 1} if self._now in self._rounds else {}


def rounds_of(*seconds: float) -> Iterator[Round]:
    """Of these times, the last one again and again."""
    for value in itertools.chain(seconds, itertools.repeat(seconds[-1])):
        yield Round(order=("v",), seconds={"v": value}, minor_faults={"v": 0.0})


@pytest.mark.parametrize(
    ("seconds", "compiling", "taken", "counts"),
    [
        ((1.0,), (), 2, True),
        ((9.0, 1.0), (), 3, True),
        ((1.0,), (0,), 2, True),  # in the first round alone
        ((1.0,), (1,), 2, False),
        ((0.01,), (), 3, True),  # short rounds cost little
        (tuple(0.5**n for n in range(40)), (), MOST_ROUNDS, False),  # never settles
    ],
)
def test_rounds_until_times_settle(
    seconds: tuple[float, ...], compiling: tuple[int, ...], taken: int, *, counts: bool
) -> None:
    watched: Any = Compiling(*compiling)
    found = warm_up(rounds_of(*seconds), watched)
    assert len(found.rounds) == taken
    assert found.counting == (found.rounds[-1:] if counts else ())
    assert found.fastest_s("v") == min(seconds[:taken])


def test_time_ends_it_too() -> None:
    watched: Any = Compiling()
    clock = itertools.count(0.0, 4.0)
    found = warm_up(rounds_of(*(0.5**n for n in range(40))), watched, lambda: next(clock))
    assert (len(found.rounds), found.settled, found.counting) == (2, False, ())


@pytest.fixture
def even(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock is a millisecond after the last, so that times settle at once."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks) / 1000)


def ready_for(min_sample_s: float) -> Session:
    ready = opened(lambda: workload("mlp"), min_sample_s=min_sample_s)
    ready.prepare("eager")
    return ready


@pytest.mark.usefixtures("even")
def test_the_last_round_of_the_warm_up_counts_where_it_can() -> None:
    ready = ready_for(0.0)
    warmed = ready.warm_up()
    assert warmed["warmup_rounds_kept"] == 1
    (kept,) = ready._kept
    assert len(ready.first_calls_s["eager"]) - 3 == warmed["warmup_rounds"]
    rounds, _ = ready.measure(3)
    assert (rounds[0], len(rounds)) == (kept, 3)
    more, _ = ready.measure(1)
    assert more[0] is not kept


@pytest.mark.usefixtures("even")
def test_a_round_of_other_variants_or_shorter_samples_does_not_count() -> None:
    ready = ready_for(0.0)
    ready.warm_up()
    (kept,) = ready._kept
    ready.keep_only(())
    rounds, _ = ready.measure(2)
    assert kept not in rounds
    assert [set(one.seconds) for one in rounds] == [{BASELINE}] * 2
    longer = ready_for(0.005)
    assert longer.warm_up()["warmup_rounds_kept"] == 0
