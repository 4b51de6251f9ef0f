"""The streams of ``--shapes``: how long each strategy takes for all calls, beside eager of the same round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import fmean, median

from harness.declared import finite
from harness.schema import EAGER_START, Compilation
from runner.analysis.comparison import Comparison, ShapeForm
from runner.analysis.start_up.forms import by_start, crossing, sharing_eager
from runner.analysis.verdicts.compiling import typical_of

FIRST = 10
Streams = Mapping[int, Compilation]


def shape_forms(comparisons: Sequence[Comparison]) -> tuple[ShapeForm, ...]:
    """Each strategy of each candidate. Candidates of a job share eager's streams."""
    return sharing_eager([form for comparison in comparisons for form in _forms(comparison)])


def _forms(comparison: Comparison) -> list[ShapeForm]:
    streams = by_start(comparison, streams=True)
    eager = streams.get(EAGER_START, {})
    return [_form(comparison, strategy, members, eager) for strategy, members in streams.items()]


def _form(comparison: Comparison, strategy: str, members: Streams, eager: Streams) -> ShapeForm:
    each = [(one, one.stream) for one in members.values() if one.stream is not None]
    own, theirs = ({n: sum(one.first_calls_s) for n, one in side.items()} for side in (members, eager))
    ratios = [theirs[n] / own[n] for n in own if n in theirs]
    is_eager = strategy == EAGER_START
    crossed = [
        crossing(list(accumulate(one.first_calls_s)), list(accumulate(eager[n].first_calls_s)))
        for n, one in members.items()
        if n in eager
    ]
    known = [step for step in crossed if step is not None]
    wrong = next((one for one, _ in each if one.failure), each[0][0])
    eagers = [len(stream.eager) for _, stream in each if stream.eager is not None]
    seconds = [value for one, _ in each if (value := finite(one.metrics.get("compile_dynamo_s"))) is not None]
    return ShapeForm(
        comparison=comparison,
        start=strategy,
        n=len(members),
        calls=len(each[0][1].sizes),
        total=typical_of([*own.values()]),
        speedup=None if is_eager or not ratios else typical_of(ratios),
        recompiles=None if is_eager else median(max(0, len(s.compiled) - 1) for _, s in each),
        eager_calls=median(eagers) if eagers and not is_eager else None,
        compile_s=fmean(seconds) if seconds and not is_eager else None,
        first_s=fmean(sum(one.first_calls_s[:FIRST]) for one, _ in each),
        settled_ms=1e3 * fmean(fmean(one.first_calls_s[len(one.first_calls_s) // 2 :]) for one, _ in each),
        overtakes=None if is_eager or len(known) < len(crossed) or not known else median(known),
        status=wrong.status,
        failure=wrong.failure,
    )
