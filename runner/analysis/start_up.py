"""The forms of a candidate in fresh processes, each beside eager that began in the same round.

The start-up race (``--start-up``): when each form has done its steps, and overtakes eager. The steps count
from the built model. The streams of ``--shapes``: how long each candidate takes for all calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from statistics import median

from harness.declared import finite
from harness.schema import EAGER_START, SIZES, Compilation
from runner.analysis.results import TOLD_AFTER, Overtaking, PairedEstimate, Result, StartForm
from runner.analysis.statistics import typical
from runner.analysis.verdicts import BreakEven
from runner.analysis.verdicts.compiling import break_even

SETTLED = 1.1  # a settled step and the two after it take at most so many times the median of the second half

Races = Mapping[int, tuple[float, ...]]
"""Round -> seconds from the beginning to the end of each step."""


def start_forms(comparisons: Iterable[Result]) -> tuple[StartForm, ...]:
    """The forms of each candidate, in their order. Candidates of a job share eager's processes."""
    forms: list[StartForm] = []
    eagers: set[tuple[str, str]] = set()
    for comparison in comparisons:
        starts: dict[str, dict[int, Compilation]] = {}
        for process in comparison.record.compilations:
            if process.first_calls_s:
                starts.setdefault(process.start, {})[process.round] = process
        job = comparison.record.job.key, comparison.record.env
        eager = _ends(starts.get(EAGER_START, {}))
        known = [start for start in starts if start != EAGER_START or job not in eagers]
        forms += [_start_form(comparison, start, starts[start], eager) for start in known]
        eagers |= {job} if EAGER_START in starts else set()
    return tuple(forms)


def _ends(members: Mapping[int, Compilation]) -> dict[int, tuple[float, ...]]:
    return {number: tuple(accumulate(process.first_calls_s)) for number, process in members.items()}


# -- races ---------------------------------------------------------------------------


def _start_form(
    comparison: Result, start: str, members: Mapping[int, Compilation], theirs: Races
) -> StartForm:
    ends, processes = _ends(members), [*members.values()]
    ratios = [theirs[n][-1] / own[-1] for n, own in ends.items() if len(theirs.get(n, ())) == len(own)]
    counts = [finite(process.metrics.get("recompiles")) for process in processes]
    again = [count for count in counts if count is not None and start == SIZES]
    least = min(map(len, ends.values()))
    stored = [process.stored_bytes for process in processes if process.stored_bytes is not None]
    settled = {number: settled_step(race) for number, race in ends.items()}
    wrong = next((process for process in processes if process.failure), processes[0])
    return StartForm(
        comparison=comparison,
        start=start,
        n=len(ends),
        after={n: typical([race[n - 1] for race in ends.values()]) for n in TOLD_AFTER if n <= least},
        curve=tuple(typical([race[n] for race in ends.values()]).factor for n in range(least)),
        settled_step=median(settled.values()),
        settled_s=typical([ends[number][step - 1] for number, step in settled.items()]),
        step_s=typical([settled_s(race) for race in ends.values()]).factor,
        stored_bytes=median(stored) if stored else None,
        overtaking=None if start == EAGER_START else overtaking(ends, theirs, comparison.estimate),
        speedup=typical(ratios) if ratios and start == SIZES else None,
        recompiles=median(again) if again else None,
        status=wrong.status,
        failure=wrong.failure,
    )


def settled_s(ends: Sequence[float]) -> float:
    """The time of a step: the median of the second half of the steps."""
    return median(_steps(ends)[len(ends) // 2 :])


def settled_step(ends: Sequence[float]) -> int:
    """The number of the first step that, with the two after it, takes no longer than a settled step."""
    steps, most = _steps(ends), SETTLED * settled_s(ends)
    settled = (place + 1 for place in range(len(steps)) if max(steps[place : place + 3]) <= most)
    return next(settled, len(steps))


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
        steps = typical(known)
        low, high = (steps.factor if end is None else end for end in (steps.low, steps.high))
        after = BreakEven(steps=steps.factor, low=low, high=high, whole=steps.low is not None)
        seconds = [own[step - 1] for (own, _), step in zip(pairs, known, strict=True)]
        return Overtaking(after=after, seconds=typical(seconds).factor, measured=True)
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
