"""How a run's time is shared out between its jobs."""

from runner.engine import Ungated
from runner.engine.executors.time_budget import TimeBudget
from tests.factories import Clock


def run_jobs(budget_s: float, jobs: list[tuple[float, float]]) -> tuple[list[float], float]:
    """Jobs as (overhead, seconds of rounds they want): what each was timed for, and the end."""
    clock = Clock()
    budget = TimeBudget(budget_s, len(jobs), clock=clock)
    timed = []
    for overhead, wanted in jobs:
        if budget.exhausted():
            break
        with budget.job(Ungated()) as allowance:
            clock.now += overhead
            spent = 0.0
            while spent < wanted and allowance(spent) > spent:
                spent += 1
                clock.now += 1
            timed.append(spent)
    return timed, clock.now


def test_jobs_that_are_decided_early_leave_their_time_to_those_that_are_not() -> None:
    timed, end = run_jobs(600, [(10, 5), (10, 1000), (10, 5), (10, 5), (10, 1000), (10, 5)])
    assert [timed[i] for i in (0, 2, 3, 5)] == [5, 5, 5, 5]
    assert timed[1] > 100
    assert timed[4] > 100
    assert sum(timed) > 0.8 * (600 - 60)
    assert end <= 601


def test_the_last_job_may_have_all_that_is_left() -> None:
    timed, end = run_jobs(300, [(10, 5), (10, 5), (10, 1e6)])
    assert 299 <= end <= 301
    assert timed[2] >= 259


def test_jobs_that_all_want_time_share_it_about_evenly() -> None:
    timed, end = run_jobs(1000, [(10, 1e6)] * 10)
    assert len(timed) == 10
    assert max(timed) < 2.5 * min(timed)
    assert end <= 1001


def test_what_the_other_jobs_need_anyway_is_set_aside() -> None:
    timed, end = run_jobs(500, [(100, 1e6), (100, 5), (100, 5), (100, 5)])
    assert len(timed) == 4  # the first leaves room for the others to build and compile
    assert end <= 501


def test_a_budget_that_is_too_small_ends_the_run_and_gives_nothing() -> None:
    timed, end = run_jobs(15, [(10, 1e6)] * 5)
    assert len(timed) == 2
    assert timed == [0, 0]
    assert end == 20


def test_lanes_side_by_side_have_more_time_between_them() -> None:
    clock = Clock()
    alone, two = (TimeBudget(100, 4, lanes, clock=clock) for lanes in (1, 2))
    with alone.job(Ungated()) as first, two.job(Ungated()) as second:
        assert second(0) > first(0)
