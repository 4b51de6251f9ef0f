"""The warnings about a run's numbers, as a table of rules: title, when, sentence with the numbers, advice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.schema import COLD, WARM, Status
from runner.analysis.columns import columns
from runner.analysis.comparison import CONTROL, Comparison, Finding
from runner.analysis.digits import (
    MISSING,
    break_even_text,
    share_text,
    speedup_text,
    with_unit,
)
from runner.analysis.environments import is_eager_of
from runner.analysis.estimate import Limits, Verdict
from runner.analysis.noise import is_crowded
from runner.analysis.verdicts.compiling import by_round, is_warm, paired_ratio
from runner.analysis.verdicts.parity import COARSE, is_coarse, resolution_text
from runner.labels import counted, suite_labels, where, where_text

# Usual limits of compiler dashboards. A result beyond a limit gets a warning.
MIN_SPEEDUP = 0.95
MAX_COMPILATION_S = 120.0
MIN_MEMORY_RATIO = 0.9
NOISE_RULE = "noise"
MESSAGE_LENGTH = 160  # the whole message is in the record and its log

# A disturbance of the rounds gets a warning above these limits.
MOST_STOLEN = 0.01  # share of all CPU time; 1 % of stolen time can fall into a single round
MOST_THROTTLED = 0.01
LEAST_WIDENING = 1.3
LEAST_OF_WARM = 1.25  # a warm start is so many times as fast as a cold one
CLOCK_SPREAD = 0.05
MINOR_FAULT_S = 0.5e-6  # assumed, with clearing the page; not measured
LEAST_OF_FAULTS = 0.02  # of eager's step
HARMLESS = ("set application clocks",)  # a user fixed the clock, which makes times steadier

Test = Callable[[Comparison], bool]
Text = str | Callable[[Comparison], str]


@dataclass(frozen=True, slots=True)
class Rule:
    """A warning: its title, when it holds for a comparison, the sentence about it, and what to do.

    A sentence that is a text names columns: ``{memory_ratio}`` is the number in its own digits.
    """

    title: str
    when: Test
    sentence: Text
    advice: Text


def findings(comparisons: Sequence[Comparison]) -> tuple[Finding, ...]:
    """Every finding of a run, in the order of RULES. Cases with the same title and advice share a finding."""
    labels = suite_labels(c.record.job.case.suite for c in comparisons)
    cases: dict[tuple[str, str], list[str]] = {}
    for rule in RULES:
        for comparison in filter(rule.when, comparisons):
            case = f"{where(comparison.record, labels)}: {_said(comparison, rule.sentence)}"
            cases.setdefault((rule.title, _said(comparison, rule.advice)), []).append(case)
    return tuple(Finding(title=t, cases=tuple(texts), advice=a) for (t, a), texts in cases.items())


class _Columns:
    """The columns of a comparison as texts. The speedup has its interval."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def __getitem__(self, name: str) -> str:
        comparison, column = self._comparison, columns()[name]
        if name == "speedup":
            return speedup_text(comparison.speedup, comparison.ci_low, comparison.ci_high)
        value = column.value(comparison)
        if value is None:
            return MISSING
        return f"{value:,}" if isinstance(value, int) else with_unit(value, column.unit)


def _said(comparison: Comparison, text: Text) -> str:
    return text.format_map(_Columns(comparison)) if isinstance(text, str) else text(comparison)


def _number(comparison: Comparison, name: str) -> float:
    """The number of this name; 0 if it is missing, or if no samples can be used."""
    return (comparison.number(name) or 0.0) if comparison.n else 0.0


# -- candidates without a speedup that counts --------------------------------------


def _ended(*statuses: Status) -> Test:
    return lambda comparison: comparison.record.status in statuses


def _wrong(comparison: Comparison) -> str:
    parity = comparison.record.parity
    if parity is None:
        return "failed"
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


def _coarse(comparison: Comparison) -> str:
    """Of a pass that says little about some tensors."""
    parity = comparison.record.parity
    if parity is None:
        return ""
    unjudged = len(parity.noise_tensors)
    more = f"; {unjudged} of {parity.tensors} tensors were not judged" if unjudged else ""
    return f"{resolution_text(parity)}{more}"


def _unjudged(comparison: Comparison) -> str:
    parity = comparison.record.parity
    if parity is None:
        return "eager's results do not allow it"
    random = f"eager draws random numbers ({parity.random}), and its results change with the seed"
    return parity.unjudged or random


def _advice_unjudged(comparison: Comparison) -> str:
    parity = comparison.record.parity
    if parity is None or parity.unjudged:
        return (
            "No error of a compiler could be seen in such results, so this is no pass. Check the model in "
            "float32, with another loss (--loss=sum), with usual weights and inputs, or at a larger scale."
        )
    return (
        "A compiler may draw other random numbers than eager: a difference is no error, and this is no pass. "
        "With --inductor-config=fallback_random=True inductor draws the same numbers as eager."
    )


def _failure(comparison: Comparison) -> str:
    record, failure = comparison.record, comparison.record.failure
    if failure is None:
        return record.status.value
    message = failure.message
    if len(message) > MESSAGE_LENGTH:
        message = f"{message[:MESSAGE_LENGTH]}..."
    log = f" (log: {failure.log})" if failure.log else ""
    return f"{record.status.value} in phase {failure.phase}: {failure.kind}: {message}{log}"


def _message(comparison: Comparison) -> str:
    record = comparison.record
    return record.status.value if record.failure is None else record.failure.message


def _advice_not_compiled(comparison: Comparison) -> str:
    advice = "The compiler compiled no part of this model, so there is nothing to compare."
    if "RNN" in _message(comparison):
        return f"{advice} Dynamo leaves RNN, GRU and LSTM to eager (torch._dynamo.config.allow_rnn=False)."
    return f"{advice} With Dynamo, TORCH_LOGS=dynamo prints what it did with the code."


def _advice_out_of_memory(comparison: Comparison) -> str:
    isolated = comparison.record.job.protocol.isolate
    isolate = "" if isolated else ", or add --isolate, so that candidates do not share the memory"
    return f"Use a smaller --batch-size{isolate}."


# -- speedups ------------------------------------------------------------------------


def _compiled(comparison: Comparison) -> bool:
    """Whether it is a compiler's result that passed."""
    compiled = comparison.compiler != CONTROL and not is_eager_of(comparison.record)
    return comparison.record.status.passed and compiled


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


def _slower_environment(comparison: Comparison) -> bool:
    slower = comparison.verdict is Verdict.SLOWER and comparison.record.status.passed
    return slower and is_eager_of(comparison.record) and not _eager_of_reference(comparison)


def _slow(comparison: Comparison) -> bool:
    """Slower, and no open verdict."""
    slower = comparison.verdict is Verdict.SLOWER and (comparison.speedup or 1.0) < MIN_SPEEDUP
    return slower and _compiled(comparison)


def _advice_broken(comparison: Comparison) -> str:
    if comparison.value("graph_break_reasons"):
        return "Run these models in eager, or change the lines that break the graph; they are listed above."
    return "Run these models in eager, or add --explain: it names the lines that break the graph."


def _until(comparison: Comparison) -> str:
    known = comparison.break_even
    steps = "" if known is None else break_even_text(known.steps, known.low, known.high, whole=known.whole)
    return f"{_said(comparison, '{compilation_latency_s}')}{f', break-even steps: {steps}' if steps else ''}"


def _secretly_cold(comparison: Comparison) -> str:
    """A warm start that compiled again, as the compiler's own counters say, or as its time says."""
    record = comparison.record
    warm = [c for c in record.compilations if c.start == WARM]
    again = [c for c in warm if is_warm(c.metrics) is False]
    if again:
        return f"{len(again)} of {counted(len(warm), 'warm start')} found nothing in the caches"
    ratio = paired_ratio(by_round(record, COLD), by_round(record, WARM))
    if ratio is None or ratio.high is None or ratio.high > LEAST_OF_WARM:
        return ""
    return f"a warm start is {speedup_text(ratio.factor, ratio.low, ratio.high)} as fast as a cold one"


def _failed_compilation(comparison: Comparison) -> str:
    failed = next(c for c in comparison.record.compilations if c.failure)
    return f"{failed.status.value} in a {failed.start} start, round {failed.round + 1}: {failed.failure}"


def _open(comparison: Comparison) -> str:
    """An open verdict, and what would probably close it."""
    record, opened = comparison.record, comparison.open
    assert opened is not None
    ended = f" (ended: {record.rounds_ended})" if record.rounds_ended else ""
    text = _said(comparison, "{speedup}") + f" after {counted(comparison.n, 'round')}{ended}"
    return f"{text}; needs {opened.closes} ({opened.reason.value})"


# -- disturbances of the rounds -------------------------------------------------------


def _dependent(comparison: Comparison) -> str:
    estimate = comparison.estimate
    assert estimate is not None
    return (
        f"{estimate.n} rounds hold the information of {estimate.effective_n:.0f}: the rounds' interval is "
        f"{estimate.widened:.1f} times as wide as independent rounds would make it"
    )


def _share_of_faults(comparison: Comparison) -> float:
    """The time of the additional page faults of a step, as a share of eager's."""
    eager, candidate = (_number(comparison, f"{side}_minor_faults") for side in ("baseline", "candidate"))
    step_ms = comparison.baseline_ms
    return abs(eager - candidate) * MINOR_FAULT_S / (step_ms / 1000) if step_ms else 0.0


def _reasons(comparison: Comparison) -> str:
    listed = str(comparison.value("gpu_throttle_reasons") or "").split("; ")
    return ", ".join(reason for reason in listed if reason and reason not in HARMLESS)


def _held_back(comparison: Comparison) -> bool:
    low, high = (_number(comparison, f"gpu_clock_{end}_mhz") for end in ("min", "max"))
    return low < (1 - CLOCK_SPREAD) * high and bool(_reasons(comparison))


JUDGED = (Status.FAIL_ACCURACY, Status.EAGER_TWO_RUNS_DIFFER, Status.CANNOT_JUDGE)
NAMED = (*JUDGED, Status.TIMEOUT, Status.NOT_COMPILED, Status.RECOMPILES)
OUT_OF_MEMORY = tuple(status for status in Status if status.out_of_memory)
OTHERS = tuple(s for s in Status if s.counted and not s.passed and s not in (*NAMED, *OUT_OF_MEMORY))

RULES = (
    Rule(
        "Parity failures",
        _ended(Status.FAIL_ACCURACY),
        _wrong,
        "These times are in no average. The commands in report.md run one model again.",
    ),
    Rule(
        "Parity cannot be judged",
        _ended(Status.EAGER_TWO_RUNS_DIFFER),
        "eager differs from itself by {eager_spread} of a tensor's size",
        "No candidate can be checked. Look for operations in the model that are not deterministic.",
    ),
    Rule(
        "Parity cannot be judged: eager's own results",
        _ended(Status.CANNOT_JUDGE),
        _unjudged,
        _advice_unjudged,
    ),
    Rule(
        f"Passed a coarse check (an error above {COARSE:.0%} would have passed)",
        lambda c: is_coarse(c.record),
        _coarse,
        "Eager's own results move by as much when its operations round differently. A larger batch, "
        "--pretrained weights or float32 allow a finer check.",
    ),
    Rule(
        "Timed out",
        _ended(Status.TIMEOUT),
        _failure,
        lambda c: f"Raise --timeout (it was {c.record.job.protocol.timeout_s:g} s), or omit the model.",
    ),
    Rule("Out of memory", _ended(*OUT_OF_MEMORY), _failure, _advice_out_of_memory),
    Rule("Not compiled", _ended(Status.NOT_COMPILED), _message, _advice_not_compiled),
    Rule(
        "Recompiled in later steps",
        _ended(Status.RECOMPILES),
        _failure,
        "The model is compiled again in later steps. TORCH_LOGS=recompiles prints the cause.",
    ),
    Rule(
        "Could not run",
        _ended(*OTHERS),
        _failure,
        "Read the log. Then run the model alone with its command in report.md.",
    ),
    Rule(
        "Samples that cannot be used",
        lambda c: bool(c.record.samples) and c.speedup is None,
        lambda c: (
            f"{len(c.record.samples or ())} rounds, but some times are missing, not positive or not finite"
        ),
        "records.jsonl is damaged or was edited. Measure these candidates again.",
    ),
    Rule(
        "The A/A control moved",
        lambda c: c.compiler == CONTROL and c.verdict in (Verdict.FASTER, Verdict.SLOWER),
        "speedup of eager over eager {speedup}, {verdict}",
        "It should be 1.00x. Stop other work, raise --repeat, and do not trust a difference of this size.",
    ),
    Rule(
        "The A/A control between processes moved",
        _moved_between_processes,
        "speedup of eager over eager of the same environment in another process {speedup}",
        "Processes differ in speed. Do not trust a difference of this size, or measure with --processes=5.",
    ),
    Rule(
        "Eager is slower in another environment",
        _slower_environment,
        lambda c: _said(c, "{speedup} relative to eager of ") + c.record.job.environments[0].name,
        "Speedups over this slow eager look too large. Compare with eager of the reference environment.",
    ),
    Rule(
        f"Slower than eager, with graph breaks (below {MIN_SPEEDUP:g})",
        lambda c: _slow(c) and bool(c.number("graph_breaks")),
        "{speedup}, {candidate_ms} (eager {baseline_ms}), graph breaks: {graph_breaks}",
        _advice_broken,
    ),
    Rule(
        f"Slower than eager (speedup below {MIN_SPEEDUP:g})",
        lambda c: _slow(c) and not c.number("graph_breaks"),
        "{speedup}, {candidate_ms} (eager {baseline_ms})",
        "Run these models in eager. No graph broke, so the compiled code itself is slower; "
        "--why tests which cause it has, and --tune tries settings.",
    ),
    Rule(
        "Nothing to compile",
        lambda c: (
            c.number("bytes_per_step") == 0 and not c.number("flops_per_step") and _compiled(c) and c.n > 0
        ),
        "{speedup}, which compares only the cost of a call",
        "These steps only create views, so no compiler can make them faster. They enter the averages.",
    ),
    Rule(
        f"Long compilation (above {MAX_COMPILATION_S:g} s)",
        lambda c: (c.compilation_latency_s or 0.0) > MAX_COMPILATION_S,
        _until,
        "Compile only for runs with more steps than the break-even steps.",
    ),
    Rule(
        "Warm starts that are not warm",
        lambda c: bool(_secretly_cold(c)),
        _secretly_cold,
        "This compiler keeps nothing between processes, or did not use what it kept. TORCH_LOGS=+inductor "
        "says why its caches are bypassed.",
    ),
    Rule(
        "Compilations that failed in a fresh process",
        lambda c: any(one.failure for one in c.record.compilations),
        _failed_compilation,
        "The candidate was not compiled further (--compile-runs). Its log has the traceback.",
    ),
    Rule(
        f"More memory than eager (ratio below {MIN_MEMORY_RATIO:g})",
        lambda c: _compiled(c) and c.memory_ratio is not None and c.memory_ratio < MIN_MEMORY_RATIO,
        "{memory_ratio}, peak {candidate_peak_gb} (eager {baseline_peak_gb})",
        "Check that the peak fits in the memory of your device. A smaller batch lowers the peak.",
    ),
    Rule(
        "Unsteady rounds",
        lambda c: c.verdict is Verdict.UNSTEADY,
        "{speedup}, but {unsteady}",
        "The verdict is withheld. The panel in report.html shows the rounds. Measure again later.",
    ),
    Rule(
        "Open verdicts",
        lambda c: c.open is not None and c.verdict is not Verdict.UNSTEADY and c.passed,
        _open,
        "The interval reaches across the noise threshold, so the data do not tell. --repeat sets the rounds, "
        "and --processes=auto adds processes where they close a verdict. A quieter machine needs fewer. A "
        "speedup near the threshold stays open.",
    ),
    Rule(
        "Rounds that depend on each other",
        lambda c: c.estimate is not None and c.estimate.widened >= LEAST_WIDENING,
        _dependent,
        "The machine's speed drifted, and the interval was widened for it. A quieter machine narrows it.",
    ),
    Rule(
        "CPU time stolen by other virtual machines",
        lambda c: _number(c, "stolen_share") > MOST_STOLEN,
        "{stolen_share} of the CPU time during the rounds",
        "Other virtual machines share this host: use a dedicated host.",
    ),
    Rule(
        "Stopped by a CPU quota",
        lambda c: _number(c, "throttled_share") > MOST_THROTTLED,
        "{throttled_share} of the CPU time during the rounds",
        "The threads use more CPU time than the quota allows: lower --threads, or raise the quota.",
    ),
    Rule(
        "Other work on the same CPUs",
        is_crowded,
        "involuntary context switches: {involuntary_switches_per_s}; eager's times vary by {baseline_cv}",
        "Other work used the CPU during samples: stop it, or lower --threads to leave a CPU free.",
    ),
    Rule(
        "Unequal numbers of page faults",
        lambda c: _compiled(c) and _share_of_faults(c) >= LEAST_OF_FAULTS,
        lambda c: (
            _said(c, "{baseline_minor_faults} a step in eager, {candidate_minor_faults} in the candidate")
            + f", about {share_text(_share_of_faults(c))} of eager's time"
        ),
        "A part of the speedup is the allocator's: try --allocator=default, jemalloc or tcmalloc.",
    ),
    Rule(
        "The GPU lowered its clock",
        _held_back,
        lambda c: _said(c, "clock {gpu_clock_min_mhz} to {gpu_clock_max_mhz}") + f" ({_reasons(c)})",
        "The clock changed during the rounds: fix it (nvidia-smi -lgc), or let the device cool down.",
    ),
    Rule(
        "The GPU's memory was short",
        lambda c: _number(c, "allocator_retries") > 0,
        "the device's allocator freed its cache {allocator_retries} times during the rounds",
        "A step that frees the cache waits for the device. Use a smaller --batch-size, or --isolate.",
    ),
)
