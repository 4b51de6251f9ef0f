"""Results of study C: records with their comparisons, and the published expectations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from harness.codec import from_json
from harness.schema import Job, Record
from harness.timing.first_calls import FIRST_CALLS
from runner.analysis.comparison import Comparison
from runner.analysis.derive import compare
from runner.analysis.digits import ms_text, seconds_text, significant, speedup_text
from runner.analysis.estimate import Estimate
from runner.runs.compare.statistics import between as between_processes
from runner.runs.compare.statistics import difference
from studies.compile_modes.options import MODELS, MODES
from studies.expectations import FAILS, HOLDS, OPEN, Expectation
from studies.journal import Line, of_kind

COMPILE_NOISE = 1.2
"""Compile times that differ by a smaller factor are equal: compilation is timed once, on a shared machine.
On a CPU, default and reduce-overhead compile the same code, so their difference is noise, too."""
MUCH_SLOWER = 2.0  # a first call is slow if it takes this many times as long as later calls

UNTIMED = "not both were timed"
ALIKE, APART = "not told apart", "told apart, in this run"
"""Verdicts on two modes that compile the same code, beside those of ``studies.expectations``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one model in one precision and mode."""

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
        """Whether the candidate passed parity and has a speedup."""
        return self.record.status.passed and self.comparison.speedup is not None

    @property
    def later_calls_s(self) -> float | None:
        """Median time of the calls after the ones that count as compilation."""
        later = self.record.first_calls_s[FIRST_CALLS:]
        return median(later) if later else None

    @property
    def why(self) -> str:
        """``crash: message of the failure``"""
        failure = self.record.failure
        return f"{self.record.status.value}{f': {failure.message}' if failure else ''}"


def title_of(job: Job) -> str:
    """``ResNet-152 float32``"""
    model = MODELS.get(job.case.name)
    return f"{model.title if model else job.case.name} {job.dtype}"


def mode_of(record: Record) -> str:
    """The name of the candidate's mode in torch.compile."""
    return next((mode for mode, name in MODES.items() if name == record.candidate), record.candidate)


def outcomes(lines: Sequence[Line]) -> tuple[Outcome, ...]:
    """All results, in the order of models and modes. ``ValueError`` for a damaged record."""
    records = [from_json(Record, line["record"]) for line in of_kind(lines, "outcome")]
    places = list(MODES.values())
    jobs = list(dict.fromkeys(record.job.key for record in records))
    records.sort(key=lambda r: (jobs.index(r.job.key), [*places, r.candidate].index(r.candidate)))
    return tuple(
        Outcome(mode=mode_of(comparison.record), comparison=comparison) for comparison in compare(records)
    )


def by_title(measured: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """The outcomes of each model and precision."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in measured:
        groups.setdefault(outcome.title, []).append(outcome)
    return groups


def missing(study: Line, measured: Sequence[Outcome]) -> list[str]:
    """The results that a killed run lacks: ``ResNet-152 float32, max-autotune``"""
    options = study["options"]
    wanted = [
        (f"{MODELS[name].title} {dtype}", mode)
        for name in options["models"]
        for dtype in options["dtypes"]
        for mode in options["modes"]
    ]
    had = {(outcome.title, outcome.mode) for outcome in measured}
    return [f"{title}, {mode}" for title, mode in wanted if (title, mode) not in had]


def outcome_line(record: Record) -> str:
    """``max-autotune: pass, compiled in 17.6 s, 75.5 ms -> 48.8 ms, 1.55x [1.52, 1.58] after 10 rounds``"""
    outcome = Outcome(mode=mode_of(record), comparison=compare((record,))[0])
    comparison = outcome.comparison
    if comparison.baseline_ms is None or comparison.candidate_ms is None:
        return f"{outcome.mode}: {outcome.why}"
    latency = comparison.compilation_latency_s
    compiled = "" if latency is None else f"compiled in {seconds_text(latency)} s, "
    speedup = speedup_text(comparison.speedup, comparison.ci_low, comparison.ci_high)
    return (
        f"{outcome.mode}: {record.status.value}, {compiled}{ms_text(comparison.baseline_ms)} ms -> "
        f"{ms_text(comparison.candidate_ms)} ms, {speedup} after {comparison.n} rounds"
    )


def pays_after(comparison: Comparison) -> float | None:
    """Calls until compilation has saved time. Infinite if the candidate is not shown to be faster."""
    if comparison.speedup is None or not comparison.record.status.passed:
        return None
    return math.inf if comparison.break_even_steps is None else comparison.break_even_steps


# -- the published expectations ------------------------------------------------------

PAIRS = tuple(combinations(MODES, 2))
"""Of each pair, the second mode is expected to compile longer and to run faster."""


def expectations(measured: Sequence[Outcome]) -> list[Expectation]:
    """Compile time rises and run time falls over the modes; the first call is slow, later ones fast."""
    made: list[Expectation] = []
    for title, group in by_title(measured).items():
        modes = {outcome.mode: outcome for outcome in group}
        default, overhead = modes.get("default"), modes.get("reduce-overhead")
        noise = COMPILE_NOISE
        if default and overhead and _same_on(default.record.job.device):
            factor = _compile_factor(default, overhead) or 1.0
            noise = max(noise, factor, 1 / factor)
        for first, second in PAIRS:
            if first not in modes or second not in modes:
                continue
            if (modes[first], modes[second]) == (default, overhead) and _same_on(
                modes[first].record.job.device
            ):
                made.append(_alike(title, modes[first], modes[second]))
                continue
            made += [
                _compile_time(title, modes[first], modes[second], noise),
                _run_time(title, modes[first], modes[second]),
            ]
        made.append(_first_calls(title, group))
    return made


def _same_on(device: str) -> bool:
    """Whether reduce-overhead does the same as default, because the device has no CUDA graphs."""
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
    holds = ALIKE if change.within(1) else APART
    return Expectation(title=title, expected=expected, found=text, holds=holds)


def _compile_time(title: str, former: Outcome, latter: Outcome, noise: float) -> Expectation:
    expected = f"compile time rises from {former.mode} to {latter.mode}"
    first, second = (o.comparison.compilation_latency_s for o in (former, latter))
    if not first or not second:
        return Expectation(title=title, expected=expected, found="not both were compiled", holds=OPEN)
    factor = second / first
    text = f"{seconds_text(first)} s -> {seconds_text(second)} s, {significant(factor, 2)} times"
    holds = HOLDS if factor > noise else FAILS if factor < 1 / noise else OPEN
    return Expectation(title=title, expected=expected, found=text, holds=holds)


def _run_time(title: str, former: Outcome, latter: Outcome) -> Expectation:
    expected = f"run time falls from {former.mode} to {latter.mode}"
    change = between(former, latter)
    if change is None:
        return Expectation(title=title, expected=expected, found=UNTIMED, holds=OPEN)
    text = f"{speedup_text(change.factor, change.low, change.high)} as fast as {former.mode}"
    holds = OPEN if change.within(1) else HOLDS if change.log > 0 else FAILS
    return Expectation(title=title, expected=expected, found=text, holds=holds)


def between(first: Outcome, second: Outcome) -> Estimate | None:
    """Speed of the second mode relative to the first. Each is compared with eager of its own process.

    The interval includes an assumed difference between processes: one process of each cannot show it.
    """
    one, other = (outcome.comparison.estimate if outcome.timed else None for outcome in (first, second))
    if one is None or other is None:
        return None
    return difference(one, other, between_processes([one.assumed_sd or 0.0, other.assumed_sd or 0.0], None))


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
