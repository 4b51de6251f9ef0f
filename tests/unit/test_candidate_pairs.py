"""Candidate against candidate, and the averages over models with their intervals."""

import math
from dataclasses import replace

import pytest

from harness.schema import Status
from runner.analysis.derive import summarize
from runner.analysis.estimate import PairedEstimate, Verdict
from runner.analysis.verdicts.averages import geomean, wilson
from runner.analysis.verdicts.between import ASSUMED
from runner.reports.parts.pairs import pair_tables, short_pair_tables
from tests.factories import known, together
from tests.unit.test_statistics import estimate


def test_two_candidates_are_compared_in_the_rounds_that_timed_both() -> None:
    summary = summarize(together("a", {"eager": 1.0, "inductor": 0.5, "torchscript": 1.0}))
    (pair,) = summary.pairs  # the control has no pair
    assert (pair.first.compiler, pair.second.compiler) == ("inductor", "torchscript")
    assert pair.speedup == pytest.approx(2.0, rel=0.01)
    assert pair.verdict is Verdict.FASTER
    assert pair.n == 40
    # what varies between processes varies for both
    assert known(pair.estimate).assumed_sd == pytest.approx(ASSUMED["inductor", "training"] * math.sqrt(2))


def test_rounds_are_joined_by_their_number_where_eager_took_equally_long() -> None:
    """A coarse clock gives eager one time in every round: the times name no round, the numbers do."""
    records = []
    for place, record in enumerate(together("a", {"inductor": 0.5, "torchscript": 1.0})):
        same = replace(
            known(record.samples), baseline_s=(1.0,) * 40, round_index=tuple(range(place, 40 + place))
        )
        records.append(replace(record, samples=same))
    (pair,) = summarize(records).pairs
    assert pair.n == 39
    assert pair.speedup == pytest.approx(2.0, rel=0.1)


def test_candidates_of_different_workers_share_no_round_and_what_failed_is_in_no_pair() -> None:
    one, two = together("a", {"inductor": 0.5, "torchscript": 1.0})
    samples = known(two.samples)
    apart = replace(samples, baseline_s=tuple(s * 1.01 for s in samples.baseline_s))
    assert summarize([one, replace(two, samples=apart)]).pairs == ()
    assert summarize([one, replace(two, status=Status.FAIL_ACCURACY)]).pairs == ()


def test_two_compilers_have_one_ratio_over_their_models_and_tables() -> None:
    records = [r for m in "abc" for r in together(m, {"inductor": 0.5, "torchscript": 1.0})]
    summary = summarize(records)
    (ratio,) = summary.ratios
    assert ratio.mean.models == 3
    assert ratio.mean.value == pytest.approx(2.0, rel=0.01)
    means, models = pair_tables(summary)
    assert means.rows[0][1] == "inductor over torchscript"
    assert len(models.rows) == 3
    assert short_pair_tables(summary) == (means,)


def an_estimate(speedup: float, half: float) -> PairedEstimate:
    return estimate(speedup, speedup / math.exp(half), speedup * math.exp(half))


def test_the_two_intervals_of_a_mean_say_different_things() -> None:
    """Models that differ, each measured well: wide for models like these, narrow for these models."""
    found = geomean([an_estimate(1.0, 0.02), an_estimate(2.0, 0.02), an_estimate(4.0, 0.02)])
    assert found.value == pytest.approx(2.0)
    assert known(found.low) < 1.0
    assert found.these_low == pytest.approx(2.0 * math.exp(-0.02 / math.sqrt(3)))
    assert found.these_high == pytest.approx(2.0 * math.exp(0.02 / math.sqrt(3)))
    assert geomean([estimate(1.0, None, None)]).these_low is None
    assert geomean([]).value is None


def test_the_mean_over_common_models() -> None:
    """torchscript has passed one model alone: the compilers are compared on that."""
    records = [*together("a", {"inductor": 0.5, "torchscript": 1.0}), *together("b", {"inductor": 0.1})]
    groups = {group.compiler: group for group in summarize(records).groups}
    assert groups["inductor"].mean.models == 2
    assert groups["inductor"].common.models == groups["torchscript"].common.models == 1
    assert groups["inductor"].common.value == pytest.approx(2.0, rel=0.01)


def test_wilsons_interval() -> None:
    # Brown, Cai & DasGupta 2001: 0 of 10 and 5 of 10
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-3)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-3)
    assert wilson(10, 10)[1] == pytest.approx(1.0)
    with pytest.raises(ValueError, match="record"):
        wilson(0, 0)
