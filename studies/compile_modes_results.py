"""Study C's outcomes: records with their comparisons, and what was expected of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from harness.codec import from_json
from harness.first_calls import FIRST_CALLS
from harness.schema import Job, Record
from runner.changes.statistics import (
    Estimate,
    Uncertain,
    difference,
    estimate,
    process_noise,
    se_of_interval,
    with_noise,
)
from runner.comparison import Comparison
from runner.derive import compare
from runner.digits import ms_text, seconds_text, significant, speedup_text
from studies.compile_modes_options import MODELS, MODES
from studies.journal import Line, of_kind

COMPILE_NOISE = 1.2
"""Compilation is timed once, on machines that are shared: a smaller factor says nothing. On a CPU default
and reduce-overhead compile the same, so what they are apart there is noise, too."""
MUCH_SLOWER = 2.0  # than later calls, for a first call to be called slow

HOLDS, FAILS, OPEN = "yes", "NOT in this run", "cannot tell"
UNTIMED = "not both were timed"
ALIKE, APART = "not told apart", "told apart, in this run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one model in one precision and mode."""

    mode: str
    comparison: Comparison

    @property
    def record(self) -> Record:
        return self.comparison.record

    @property
    def title(self) -> str:
        return title_of(self.record.job)

    @property
    def timed(self) -> bool:
        """Whether there is a speedup of a candidate that computes what eager does."""
        return self.record.status.passed and self.comparison.speedup is not None

    @property
    def later_calls_s(self) -> float | None:
        """Median of the calls after those that count as compilation."""
        later = self.record.first_calls_s[FIRST_CALLS:]
        return median(later) if later else None

    @property
    def why(self) -> str:
        """``crash: what the failure says``"""
        failure = self.record.failure
        return f"{self.record.status.value}{f': {failure.message}' if failure else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A sentence of the published story, what was found of it, and whether it holds."""

    title: str
    expected: str
    found: str
    holds: str  # HOLDS, FAILS or OPEN; of modes that are the same: ALIKE, APART or OPEN


def title_of(job: Job) -> str:
    """``ResNet-152 float32``"""
    known = MODELS.get(job.case.name)
    return f"{known.title if known else job.case.name} {job.dtype}"


def mode_of(record: Record) -> str:
    """What torch.compile calls the mode of this candidate."""
    return next((mode for mode, name in MODES.items() if name == record.candidate), record.candidate)


def outcomes(lines: Sequence[Line]) -> tuple[Outcome, ...]:
    """All of the study, in the order of models and modes. ``ValueError`` for a damaged record."""
    found = [from_json(Record, line["record"]) for line in of_kind(lines, "outcome")]
    places = list(MODES.values())
    jobs = list(dict.fromkeys(record.job.key for record in found))
    found.sort(key=lambda r: (jobs.index(r.job.key), [*places, r.candidate].index(r.candidate)))
    return tuple(Outcome(mode=mode_of(one.record), comparison=one) for one in compare(found))


def by_title(found: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each model and precision."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in found:
        groups.setdefault(outcome.title, []).append(outcome)
    return groups


def missing(study: Line, found: Sequence[Outcome]) -> list[str]:
    """What a killed run has no outcome of: ``ResNet-152 float32, max-autotune``"""
    options = study["options"]
    wanted = [
        (f"{MODELS[name].title} {dtype}", mode)
        for name in options["models"]
        for dtype in options["dtypes"]
        for mode in options["modes"]
    ]
    had = {(outcome.title, outcome.mode) for outcome in found}
    return [f"{title}, {mode}" for title, mode in wanted if (title, mode) not in had]


def outcome_line(record: Record) -> str:
    """``max-autotune: pass, compiled in 17.6 s, 75.5 ms -> 48.8 ms, 1.55x [1.52, 1.58] after 10 rounds``"""
    outcome = Outcome(mode=mode_of(record), comparison=compare((record,))[0])
    found = outcome.comparison
    if found.baseline_ms is None or found.candidate_ms is None:
        return f"{outcome.mode}: {outcome.why}"
    latency = found.compilation_latency_s
    compiled = "" if latency is None else f"compiled in {seconds_text(latency)} s, "
    return (
        f"{outcome.mode}: {record.status.value}, {compiled}{ms_text(found.baseline_ms)} ms -> "
        f"{ms_text(found.candidate_ms)} ms, {speedup_text(found.speedup, found.ci_low, found.ci_high)} "
        f"after {found.n} rounds"
    )


def pays_after(comparison: Comparison) -> float | None:
    """Calls after which compiling has paid for itself; infinite where it is not shown to be faster."""
    if comparison.speedup is None or not comparison.record.status.passed:
        return None
    return math.inf if comparison.break_even_steps is None else comparison.break_even_steps


# -- the published story -------------------------------------------------------------


def expectations(found: Sequence[Outcome]) -> list[Expectation]:
    """Compile time rises and run time falls over the modes; the first call is slow, later ones fast."""
    made: list[Expectation] = []
    for title, group in by_title(found).items():
        modes = {outcome.mode: outcome for outcome in group}
        default, overhead = modes.get("default"), modes.get("reduce-overhead")
        noise = COMPILE_NOISE
        if default and overhead and _same_on(default.record.job.device):
            factor = _compile_factor(default, overhead) or 1.0
            noise = max(noise, factor, 1 / factor)
        for outcome in group if default else ():
            assert default is not None
            if outcome is default:
                continue
            if outcome is overhead and _same_on(outcome.record.job.device):
                made.append(_alike(title, default, outcome))
                continue
            made += [_compile_time(title, default, outcome, noise), _run_time(title, default, outcome)]
        made.append(_first_calls(title, group))
    return made


def _same_on(device: str) -> bool:
    """Whether reduce-overhead is default there: it is about CUDA graphs."""
    return device.startswith("cpu")


def _compile_factor(first: Outcome, second: Outcome) -> float | None:
    times = [outcome.comparison.compilation_latency_s for outcome in (first, second)]
    return times[1] / times[0] if times[0] and times[1] else None


def _alike(title: str, default: Outcome, other: Outcome) -> Expectation:
    expected = f"{other.mode} is default, without CUDA graphs"
    change, factor = between(default, other), _compile_factor(default, other)
    if change is None:
        return Expectation(title=title, expected=expected, found=UNTIMED, holds=OPEN)
    text = f"{speedup_text(change.factor, change.low, change.high)} as fast as default"
    text += f", compiled in {significant(factor, 2)} times the time" if factor else ""
    holds = ALIKE if change.low <= 1 <= change.high else APART
    return Expectation(title=title, expected=expected, found=text, holds=holds)


def _compile_time(title: str, default: Outcome, other: Outcome, noise: float) -> Expectation:
    expected = f"compile time rises from default to {other.mode}"
    first, second = (o.comparison.compilation_latency_s for o in (default, other))
    if not first or not second:
        return Expectation(title=title, expected=expected, found="not both were compiled", holds=OPEN)
    factor = second / first
    text = f"{seconds_text(first)} s -> {seconds_text(second)} s, {significant(factor, 2)} times"
    holds = HOLDS if factor > noise else FAILS if factor < 1 / noise else OPEN
    return Expectation(title=title, expected=expected, found=text, holds=holds)


def _run_time(title: str, default: Outcome, other: Outcome) -> Expectation:
    expected = f"run time falls from default to {other.mode}"
    change = between(default, other)
    if change is None:
        return Expectation(title=title, expected=expected, found=UNTIMED, holds=OPEN)
    text = f"{speedup_text(change.factor, change.low, change.high)} as fast as default"
    holds = HOLDS if change.low > 1 else FAILS if change.high < 1 else OPEN
    return Expectation(title=title, expected=expected, found=text, holds=holds)


def between(first: Outcome, second: Outcome) -> Estimate | None:
    """How many times as fast the second mode is, both held against eager of their own process.

    The interval has in it what two processes differ by, which is assumed: one of each is no estimate.
    """
    known = [_log_speedup(outcome) for outcome in (first, second)]
    if known[0] is None or known[1] is None:
        return None
    return estimate(with_noise(difference(known[0], known[1]), process_noise((), ())))


def _log_speedup(outcome: Outcome) -> Uncertain | None:
    found = outcome.comparison
    if not outcome.timed or found.speedup is None or found.ci_low is None or found.ci_high is None:
        return None
    error = se_of_interval(found.ci_low, found.ci_high, found.n)
    return Uncertain(value=math.log(found.speedup), se=error, df=found.n - 1)


def _first_calls(title: str, group: Sequence[Outcome]) -> Expectation:
    expected = "the first call is slow, later ones are fast"
    factors = [
        outcome.record.first_calls_s[0] / later
        for outcome in group
        if (later := outcome.later_calls_s) is not None and later > 0
    ]
    if not factors:
        return Expectation(title=title, expected=expected, found="no later calls", holds=OPEN)
    slow = sum(factor > MUCH_SLOWER for factor in factors)
    span = " to ".join(dict.fromkeys(significant(f, 2) for f in (min(factors), max(factors))))
    text = f"the first takes {span} times as long, {slow} of {len(factors)} modes"
    return Expectation(
        title=title, expected=expected, found=text, holds=HOLDS if slow == len(factors) else FAILS
    )
