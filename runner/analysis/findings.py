"""The warnings about a run's numbers: ``findings.toml`` has their words, this file what the words name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

from harness.declared import finite
from harness.devices import of
from harness.loading.toml_file import read_toml
from harness.schema import BASELINE, CACHE_FILE, COLD, WARM, Compilation, Status
from harness.timing.measure import placement
from runner.analysis.columns import columns
from runner.analysis.comparison import CONTROL, Comparison, Finding
from runner.analysis.digits import MISSING, break_even_text, estimate_text, share_text, with_unit
from runner.analysis.environments import is_compiled, is_eager_of
from runner.analysis.estimate import Limits, Verdict
from runner.analysis.verdicts.compiling import (
    LATENCY,
    WAITING,
    by_round,
    first_step_by_round,
    is_warm,
    paired_ratio,
)
from runner.analysis.verdicts.parity import COARSE, is_coarse, resolution_text
from runner.labels import counted, cut, suite_labels, where, where_text

LIMITS = MappingProxyType(
    {
        "COARSE": COARSE,
        "MIN_SPEEDUP": 0.95,
        "MAX_COMPILATION_S": 120.0,
        "MIN_MEMORY_RATIO": 0.9,
    }
)
"""Usual limits of compiler dashboards, which titles name. A result beyond a limit gets a warning."""
NOISE_RULE = "noise"
INDUCTOR = "inductor"
MESSAGE_LENGTH = 160  # the whole message is in the record and its log

# A disturbance of the rounds gets a warning above these limits.
MOST_STOLEN = 0.01  # share of all CPU time; 1 % of stolen time can fall into a single round
MOST_THROTTLED = 0.01
MOST_SWITCHES_PER_S = 100.0
LEAST_CV = 0.1  # if times vary less, the context switches did no harm
LEAST_WIDENING = 1.3
LEAST_OF_WARM = 1.25  # a warm start is so many times as fast as a cold one
CLOCK_SPREAD = 0.05
MOST_CAPPED = 0.5  # share of the samples at the power limit
MOST_WAITING = 0.1  # share of the time of compiling
MINOR_FAULT_S = 0.5e-6  # assumed, with clearing the page; not measured
LEAST_OF_FAULTS = 0.02  # of eager's step
HARMLESS = ("set application clocks",)  # a user fixed the clock, which makes times steadier


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A warning: for comparisons with one of these statuses, or for which the test ``when`` holds."""

    title: str
    sentence: str
    advice: str
    status: Sequence[str] = field(default=())
    when: str = ""

    def holds(self, comparison: Comparison) -> bool:
        return comparison.status.value in self.status or (bool(self.when) and WHEN[self.when](comparison))


@cache
def rules() -> tuple[Rule, ...]:
    """The rules, in the order of their file."""
    return tuple(Rule(**row) for row in read_toml(Path(__file__).with_suffix(".toml"))["rule"])


def findings(comparisons: Sequence[Comparison]) -> tuple[Finding, ...]:
    """Every finding of a run, in the order of the rules. Cases with the same title and advice share one."""
    labels = suite_labels(c.record.job.case.suite for c in comparisons)
    cases: dict[tuple[str, str], list[str]] = {}
    for rule in rules():
        title = rule.title.format_map(LIMITS)
        for comparison in filter(rule.holds, comparisons):
            known = Known(comparison)
            case = f"{where(comparison.record, labels)}: {rule.sentence.format_map(known)}"
            cases.setdefault((title, rule.advice.format_map(known)), []).append(case)
    return tuple(Finding(title=t, cases=tuple(texts), advice=a) for (t, a), texts in cases.items())


@dataclass(frozen=True, slots=True)
class Known:
    """The facts and the columns of a comparison as texts. The speedup has its interval."""

    comparison: Comparison

    def __getitem__(self, name: str) -> str:
        if name in FACTS:
            return FACTS[name](self.comparison)
        column = columns()[name]
        value = column.value(self.comparison)
        if value is None:
            return MISSING
        return f"{value:,}" if isinstance(value, int) else with_unit(value, column.unit)


def _number(comparison: Comparison, name: str) -> float:
    """The number of this name; 0 if it is missing, or if no samples can be used."""
    return (comparison.number(name) or 0.0) if comparison.n else 0.0


# -- candidates without a speedup that counts --------------------------------------


def _wrong(comparison: Comparison) -> str:
    parity, failure = comparison.record.parity, comparison.record.failure
    if parity is None:
        return failure.message if failure is not None else "failed"
    if failure is not None and not parity.failed:  # at another size, with --shapes
        return failure.message
    text = f"{parity.failed} of {parity.tensors} tensors differ too much"
    worst = parity.worst
    if worst is None:
        return text
    by = f" ({parity.found_by})" if parity.found_by else ""
    if parity.rule == NOISE_RULE:
        after = f"; it is the first of {parity.failed} that fail, of {parity.tensors} tensors"
        text = f"{worst.name}: {worst.failure}{by}{after if parity.failed > 1 else ''}"
    else:
        reason = worst.failure or f"RMS error {worst.candidate_rmse:.3g}, limit {worst.allowed:.3g}"
        text += f"; worst {worst.name}: {reason} (eager's own error {worst.eager_rmse:.3g}){by}"
    if parity.lower_precision:
        text += f"; the errors are as large as in {parity.lower_precision}, a lower precision than asked"
    return text + (f"; {where_text(parity.where)}" if parity.where is not None else "")


def _is_random(comparison: Comparison) -> bool:
    parity = comparison.record.parity
    return parity is not None and not parity.unjudged


def _coarse(comparison: Comparison) -> str:
    """Of a pass that says little about some tensors."""
    parity = comparison.record.parity
    if parity is None:
        return ""
    unjudged = len(parity.noise_tensors)
    more = f"; {unjudged} of {parity.tensors} tensors were not judged" if unjudged else ""
    return f"{resolution_text(parity)}{more}"


def _failure(comparison: Comparison) -> str:
    record, failure = comparison.record, comparison.record.failure
    if failure is None:
        return record.status.value
    message = cut(failure.message, MESSAGE_LENGTH)
    log = f" (log: {failure.log})" if failure.log else ""
    return f"{record.status.value} in phase {failure.phase}: {failure.kind}: {message}{log}"


def _message(comparison: Comparison) -> str:
    record = comparison.record
    return record.status.value if record.failure is None else record.failure.message


# -- speedups ------------------------------------------------------------------------


def _compiled(comparison: Comparison) -> bool:
    """Whether it is a compiler's result that passed."""
    return comparison.record.status.passed and is_compiled(comparison.record)


def _eager_of_reference(comparison: Comparison) -> bool:
    record = comparison.record
    return is_eager_of(record) and record.env == record.job.environments[0].name


def _moved_between_processes(comparison: Comparison) -> bool:
    """Eager of the reference environment must be as fast in a second process as in the first."""
    estimate = comparison.estimate
    if not _eager_of_reference(comparison) or estimate is None or estimate.interval is None:
        return False
    (low, high), limit = estimate.interval, Limits.of(comparison.record.job.protocol).log
    return low > limit or high < -limit


def _slow(comparison: Comparison, *, broken: bool) -> bool:
    """Slower, and no open verdict. ``broken``: with graph breaks, or without."""
    slower = comparison.verdict is Verdict.SLOWER and (comparison.speedup or 1.0) < LIMITS["MIN_SPEEDUP"]
    return slower and _compiled(comparison) and bool(comparison.number("graph_breaks")) is broken


def _secretly_cold(comparison: Comparison) -> str:
    """A warm start that compiled again, as the compiler's own counters say, or as its time says."""
    record = comparison.record
    for start in (WARM, CACHE_FILE):
        begun = [c for c in record.compilations if c.start == start and not c.failure]
        again = [c for c in begun if is_warm(c.metrics) is False]
        if again:
            what = "caches" if start == WARM else "cache file"
            return f"{len(again)} of {counted(len(begun), f'{start} start')} found nothing in the {what}"
        for seconds in (by_round, first_step_by_round):
            ratio = paired_ratio(seconds(record, COLD), seconds(record, start))
            if ratio is not None and ratio.high is not None and ratio.high <= LEAST_OF_WARM:
                return f"a {start} start is {estimate_text(ratio)} as fast as a cold one"
    return ""


def _break_even(comparison: Comparison) -> str:
    even = comparison.break_even
    return "" if even is None else f", break-even steps: {break_even_text(even)}"


def _order(comparison: Comparison) -> str:
    """The candidates of inductor in the drawn order in which they compiled; "" where it does not matter.

    On an accelerator they share Triton's kernels on disk, also if each has a process of its own.
    """
    record, job = comparison.record, comparison.record.job
    names = [name for name in placement((BASELINE, *job.candidates), job) if name.startswith(INDUCTOR)]
    shared = of(job.device).accelerated and record.candidate in names and len(names) > 1
    timed = comparison.compilation_latency_s is not None and not by_round(record, COLD)
    return ", ".join(names) if shared and timed else ""


def _waiting(comparison: Comparison) -> float:
    """The share of the time of compiling in fresh processes in which other work had the processor."""
    waited, own = (
        sum(sum(by_round(comparison.record, start, name).values()) for start in (COLD, WARM))
        for name in (WAITING, LATENCY)
    )
    return waited / (waited + own) if waited else 0.0


def _untimed(comparison: Comparison) -> str:
    """Of these compilations, those that took no longer than they waited: ``by_round`` has no time of them."""
    begun = (c for c in comparison.record.compilations if c.start in (COLD, WARM) and not c.first_calls_s)
    times = [(finite(c.metrics.get(LATENCY)), finite(c.metrics.get(WAITING))) for c in begun]
    count = sum(own is not None and waited is not None and own <= waited > 0 for own, waited in times)
    return (
        f"; less this waiting, no time is left of {counted(count, 'compilation')} (not counted)"
        if count
        else ""
    )


def _failed_compilation(comparison: Comparison) -> str:
    failed = next(filter(_fails, comparison.record.compilations))
    return f"{failed.status.value} in round {failed.round + 1} of the {failed.start} start: {failed.failure}"


def _fails(compilation: Compilation) -> bool:
    known = (Status.FAIL_ACCURACY, Status.SKIP)
    return bool(compilation.failure) and compilation.status not in known


def _wrong_form(comparison: Comparison) -> str:
    """Of a candidate that passes: the stored form of it that computes something else."""
    wrong = [c for c in comparison.record.compilations if c.status is Status.FAIL_ACCURACY]
    return f"from a {wrong[0].start} start: {wrong[0].failure}" if wrong and comparison.passed else ""


def _open(comparison: Comparison) -> str:
    """The rounds of an open verdict, and what would probably close it."""
    record, opened = comparison.record, comparison.open
    assert opened is not None
    ended = f" (ended: {record.rounds_ended})" if record.rounds_ended else ""
    needs = f"needs {opened.closes} (open because: {opened.reason.value})"
    return f"{counted(comparison.n, 'round')}{ended}; {needs}"


# -- disturbances of the rounds -------------------------------------------------------


def _share_of_faults(comparison: Comparison) -> float:
    """The time of the additional page faults of a step, as a share of eager's."""
    eager, candidate = (_number(comparison, f"{side}_minor_faults") for side in ("baseline", "candidate"))
    step_ms = comparison.baseline_ms
    return abs(eager - candidate) * MINOR_FAULT_S / (step_ms / 1000) if step_ms else 0.0


def is_crowded(comparison: Comparison) -> bool:
    """Whether other work used the CPUs: involuntary context switches, and eager's times vary."""
    switches, cv = (_number(comparison, name) for name in ("involuntary_switches_per_s", "baseline_cv"))
    return switches > MOST_SWITCHES_PER_S and cv > LEAST_CV


def _reasons(comparison: Comparison) -> str:
    listed = str(comparison.value("gpu_throttle_reasons") or "").split("; ")
    return ", ".join(reason for reason in listed if reason and reason not in HARMLESS)


def _held_back(comparison: Comparison) -> bool:
    low, high = (_number(comparison, f"gpu_clock_{end}_mhz") for end in ("min", "max"))
    return low < (1 - CLOCK_SPREAD) * high and bool(_reasons(comparison))


NAMED = (
    *(Status.FAIL_ACCURACY, Status.EAGER_TWO_RUNS_DIFFER, Status.CANNOT_JUDGE, Status.TIMEOUT),
    *(Status.NOT_COMPILED, Status.RECOMPILES, *(status for status in Status if status.out_of_memory)),
)
"""Statuses with a rule of their own."""


def _not_compiled(comparison: Comparison) -> str:
    """Which reason is stated; "" if it was compiled."""
    if comparison.status is not Status.NOT_COMPILED:
        return ""
    message = _message(comparison)
    if "RNN" in message:
        return "recurrent"
    bare = message.startswith("nothing of the model reached") and ": " not in message
    return "unexplained" if bare else "explained"


WHEN: Mapping[str, Callable[[Comparison], bool]] = MappingProxyType(
    {
        "unjudged": lambda c: c.status is Status.CANNOT_JUDGE and not _is_random(c),
        "random": lambda c: c.status is Status.CANNOT_JUDGE and _is_random(c),
        "coarse": lambda c: is_coarse(c.record),
        "out_of_memory": lambda c: c.status.out_of_memory and not c.record.job.protocol.isolate,
        "out_of_memory_isolated": lambda c: c.status.out_of_memory and c.record.job.protocol.isolate,
        "not_compiled": lambda c: _not_compiled(c) == "explained",
        "not_compiled_unexplained": lambda c: _not_compiled(c) == "unexplained",
        "recurrent": lambda c: _not_compiled(c) == "recurrent",
        "could_not_run": lambda c: c.status.counted and not c.passed and c.status not in NAMED,
        "damaged_samples": lambda c: bool(c.record.samples) and c.speedup is None,
        "control_moved": lambda c: c.compiler == CONTROL and c.verdict in (Verdict.FASTER, Verdict.SLOWER),
        "moved_between_processes": _moved_between_processes,
        "slower_environment": lambda c: (
            c.verdict is Verdict.SLOWER and c.passed and is_eager_of(c.record) and not _eager_of_reference(c)
        ),
        "slow_with_reasons": lambda c: _slow(c, broken=True) and bool(c.value("graph_break_reasons")),
        "slow_without_reasons": lambda c: _slow(c, broken=True) and not c.value("graph_break_reasons"),
        "slow_unbroken": lambda c: _slow(c, broken=False),
        "only_views": lambda c: (
            c.number("bytes_per_step") == 0 and not c.number("flops_per_step") and _compiled(c) and c.n > 0
        ),
        "long_compilation": lambda c: (c.compilation_latency_s or 0.0) > LIMITS["MAX_COMPILATION_S"],
        "ordered": lambda c: bool(_order(c)),
        "secretly_cold": lambda c: bool(_secretly_cold(c)),
        "compiled_beside": lambda c: _waiting(c) > MOST_WAITING or bool(_untimed(c)),
        "failed_compilation": lambda c: any(map(_fails, c.record.compilations)),
        "wrong_form": lambda c: bool(_wrong_form(c)),
        "more_memory": lambda c: (
            _compiled(c) and c.memory_ratio is not None and c.memory_ratio < LIMITS["MIN_MEMORY_RATIO"]
        ),
        "unsteady": lambda c: c.verdict is Verdict.UNSTEADY,
        "open": lambda c: c.open is not None and c.verdict is not Verdict.UNSTEADY and c.passed,
        "dependent": lambda c: c.estimate is not None and c.estimate.widened >= LEAST_WIDENING,
        "stolen": lambda c: _number(c, "stolen_share") > MOST_STOLEN,
        "throttled": lambda c: _number(c, "throttled_share") > MOST_THROTTLED,
        "crowded": is_crowded,
        "unequal_faults": lambda c: _compiled(c) and _share_of_faults(c) >= LEAST_OF_FAULTS,
        "allocator": lambda c: _compiled(c) and c.allocator is not None,
        "held_back": _held_back,
        "capped": lambda c: _number(c, "gpu_capped_share") > MOST_CAPPED and not _held_back(c),
        "short_of_memory": lambda c: _number(c, "allocator_retries") > 0,
    }
)
"""The tests that rules name."""

FACTS: Mapping[str, Callable[[Comparison], str]] = MappingProxyType(
    {
        "speedup": lambda c: estimate_text(c.estimate),
        "wrong": _wrong,
        "unjudged": lambda c: (
            c.record.parity.unjudged if c.record.parity else "eager's results do not allow it"
        ),
        "random": lambda c: c.record.parity.random if c.record.parity else "",
        "resolution": _coarse,
        "failed": _failure,
        "message": _message,
        "timeout": lambda c: f"{c.record.job.protocol.timeout_s:g}",
        "rounds": lambda c: str(len(c.record.samples or ())),
        "reference_environment": lambda c: c.record.job.environments[0].name,
        "break_even": _break_even,
        "order": _order,
        "secretly_cold": _secretly_cold,
        "waiting": lambda c: share_text(_waiting(c)),
        "untimed": _untimed,
        "failed_compilation": _failed_compilation,
        "wrong_form": _wrong_form,
        "open": _open,
        "independent_rounds": lambda c: f"{c.estimate.effective_n:.0f}" if c.estimate else MISSING,
        "widened": lambda c: f"{c.estimate.widened:.1f}" if c.estimate else MISSING,
        "system": lambda c: estimate_text(c.system),
        "allocator": lambda c: estimate_text(c.allocator),
        "share_of_faults": lambda c: share_text(_share_of_faults(c)),
        "throttle_reasons": _reasons,
    }
)
"""The texts that sentences name, beside the columns."""
