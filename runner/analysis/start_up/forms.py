"""The start-up race (``--start-up``): when each form of a candidate has done its steps, and overtakes eager.

Every race has its own eager, which began in the same round. The steps count from the built model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import median
from typing import TypeVar

from harness.schema import EAGER_START, Compilation
from runner.analysis.comparison import TOLD_AFTER, Comparison, Overtaking, ShapeForm, StartForm
from runner.analysis.estimate import BreakEven, PairedEstimate
from runner.analysis.verdicts.compiling import break_even, typical_of

SETTLED = 1.1  # a settled step and the two after it take at most so many times the median of the second half

Form = TypeVar("Form", StartForm, ShapeForm)

Races = Mapping[int, tuple[float, ...]]
"""Round -> seconds from the beginning to the end of each step."""


def start_forms(comparisons: Sequence[Comparison]) -> tuple[StartForm, ...]:
    """The forms of each candidate, in the order in which they were raced. Candidates share eager's race."""
    return sharing_eager([form for comparison in comparisons for form in _forms(comparison)])


def sharing_eager(forms: Sequence[Form]) -> tuple[Form, ...]:
    """Eager once for all candidates of a job and environment."""
    eagers = {_race(form): form for form in reversed(forms) if form.start == EAGER_START}
    return tuple(form for form in forms if form.start != EAGER_START or form is eagers[_race(form)])


def _race(form: StartForm | ShapeForm) -> tuple[str, str]:
    return form.comparison.record.job.key, form.comparison.record.env


def by_start(comparison: Comparison, *, streams: bool) -> dict[str, dict[int, Compilation]]:
    """Start -> round -> the process whose steps are timed; ``streams``: of ``--shapes``, else of a race."""
    members: dict[str, dict[int, Compilation]] = {}
    for one in comparison.record.compilations:
        if one.first_calls_s and (one.stream is not None) == streams:
            members.setdefault(one.start, {})[one.round] = one
    return members


def _forms(comparison: Comparison) -> list[StartForm]:
    races = by_start(comparison, streams=False)
    ends = {start: _ends(members) for start, members in races.items()}
    eager = ends.get(EAGER_START, {})
    return [_form(comparison, start, [*races[start].values()], ends[start], eager) for start in races]


def _ends(members: Mapping[int, Compilation]) -> dict[int, tuple[float, ...]]:
    return {number: tuple(accumulate(one.first_calls_s)) for number, one in members.items()}


def _form(
    comparison: Comparison, start: str, members: Sequence[Compilation], ends: Races, eager: Races
) -> StartForm:
    least = min(map(len, ends.values()))
    stored = [one.stored_bytes for one in members if one.stored_bytes is not None]
    settled = {number: settled_step(one) for number, one in ends.items()}
    wrong = next((one for one in members if one.failure), members[0])
    return StartForm(
        comparison=comparison,
        start=start,
        n=len(ends),
        after={n: typical_of([one[n - 1] for one in ends.values()]) for n in TOLD_AFTER if n <= least},
        curve=tuple(typical_of([one[n] for one in ends.values()]).value for n in range(least)),
        settled_step=median(settled.values()),
        settled_s=typical_of([ends[number][step - 1] for number, step in settled.items()]),
        step_s=typical_of([settled_s(one) for one in ends.values()]).value,
        stored_bytes=median(stored) if stored else None,
        overtaking=None if start == EAGER_START else overtaking(ends, eager, comparison.estimate),
        status=wrong.status,
        failure=wrong.failure,
    )


def settled_s(ends: Sequence[float]) -> float:
    """The time of a step: the median of the second half of the steps."""
    return median(_steps(ends)[len(ends) // 2 :])


def settled_step(ends: Sequence[float]) -> int:
    """The number of the first step that, with the two after it, takes no longer than a settled step."""
    steps, most = _steps(ends), SETTLED * settled_s(ends)
    return next(
        (place + 1 for place in range(len(steps)) if max(steps[place : place + 3]) <= most), len(steps)
    )


def _steps(ends: Sequence[float]) -> list[float]:
    return [end - begin for begin, end in zip((0.0, *ends), ends, strict=False)]


def overtaking(form: Races, eager: Races, speedup: PairedEstimate | None) -> Overtaking | None:
    """None without races of both in a round, or where neither the steps nor a speedup tell it."""
    pairs = [(form[number], eager[number]) for number in form if number in eager]
    if not pairs:
        return None
    crossed = [crossing(*pair) for pair in pairs]
    known = [step for step in crossed if step is not None]
    if len(known) == len(pairs):
        steps = typical_of(known)
        after = BreakEven(
            steps=steps.value,
            low=steps.value if steps.low is None else steps.low,
            high=steps.value if steps.high is None else steps.high,
            whole=steps.low is not None,
        )
        seconds = [own[step - 1] for (own, _), step in zip(pairs, known, strict=True)]
        return Overtaking(after=after, seconds=typical_of(seconds).value, measured=True)
    costs = [beyond_steps(own) - beyond_steps(theirs) for own, theirs in pairs]
    even = break_even(costs, speedup) if min(costs) > 0 else None
    if even is None or speedup is None:
        return None
    at_first = sum(beyond_steps(theirs) for _, theirs in pairs) / len(pairs)
    return Overtaking(after=even, seconds=at_first + even.steps * speedup.baseline_median_s, measured=False)


def crossing(form: Sequence[float], eager: Sequence[float]) -> int | None:
    """The first step from which on the form is never behind eager; None if it is behind at the last one."""
    behind = [place for place, (own, theirs) in enumerate(zip(form, eager, strict=False)) if own > theirs]
    first = behind[-1] + 2 if behind else 1
    return first if first <= min(len(form), len(eager)) else None


def beyond_steps(ends: Sequence[float]) -> float:
    """Seconds that the first steps take beyond as many settled ones: what the start costs."""
    return ends[-1] - len(ends) * settled_s(ends)
