"""The statistics of compile times, and break-even."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median

import pytest

from harness.schema import AS_FOUND, COLD, WARM, Compilation, Record
from runner.analysis.derive import summarize
from runner.analysis.verdicts.compiling import break_even, compilations_of, paying
from tests.factories import make_job, make_record


def compiled(start: str, seconds: float, round_: int = 0, **metrics: float) -> Compilation:
    return Compilation(start=start, round=round_, metrics={"compilation_latency_s": seconds, **metrics})


def test_the_cold_compilations_count_and_not_that_of_the_timed_process() -> None:
    several = tuple(compiled(start, s) for start, s in ((COLD, 4.0), (WARM, 1.0), (COLD, 9.0)))
    record = replace(make_record(make_job(), compilation_s=1.1), compilations=several)
    assert compilations_of(record) == [4.0, 9.0]
    (comparison,) = summarize([record]).comparisons
    assert comparison.compilation_latency_s == pytest.approx(6.0)  # the geometric mean
    assert comparison.value("compilation_latency_s") == pytest.approx(6.0)


def test_later_processes_count_if_their_caches_were_in_the_same_state() -> None:
    later = (
        compiled(AS_FOUND, 4.5, compile_cache_misses=3),
        compiled(AS_FOUND, 0.5, compile_cache_hits=3),
    )
    record = make_record(make_job(), compilation_s=5.0, metrics={"compile_cache_misses": 3})
    assert compilations_of(replace(record, compilations=later)) == [5.0, 4.5]
    assert compilations_of(record) == [5.0]


def test_the_interval_of_break_even_holds_the_spread_of_the_compilations() -> None:
    (comparison,) = summarize([make_record(make_job(), speedup=2.0, jitter=0.01)]).comparisons
    one, several = (break_even(times, comparison.estimate) for times in ([4.0], [2.0, 4.0, 8.0]))
    assert one is not None
    assert several is not None
    assert several.steps == pytest.approx(one.steps)
    assert several.low < 0.6 * one.low < one.steps < one.high < 0.6 * several.high
    assert (one.whole, several.whole) == (False, True)


def record_of(name: str, speedup: float, jitter: float = 0.001) -> Record:
    return make_record(make_job(name), speedup=speedup, jitter=jitter)


def test_a_model_that_never_pays_is_in_the_median() -> None:
    """The median over those that pay alone would be that of the best models."""
    speedups = {"a": 2.0, "b": 1.5, "c": 0.9, "d": 0.8, "e": 0.7}
    summary = summarize([record_of(name, speedup) for name, speedup in speedups.items()])
    (group,) = summary.groups
    assert (group.break_even.models, group.break_even.pays, group.break_even.never) == (5, 2, 3)
    assert group.break_even.median == math.inf
    paying_steps = [c.break_even_steps or 0.0 for c in summary.comparisons[:2]]
    assert group.break_even.median_of_paying == pytest.approx(median(paying_steps))


def test_without_a_model_nothing_is_known() -> None:
    assert paying([]).median is None
    assert break_even([], None) is None


def test_eager_has_no_break_even() -> None:
    (control,) = summarize([make_record(make_job(candidates=("eager",)), "eager")]).comparisons
    assert control.break_even is None
