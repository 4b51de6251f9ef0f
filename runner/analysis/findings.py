"""The warnings about a run's numbers, as a table of rules: title, sentence with the number, advice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.schema import Record, Status
from runner.analysis.comparison import CONTROL, Comparison, Finding
from runner.analysis.digits import (
    break_even_text,
    memory_text,
    ms_text,
    seconds_text,
    share_text,
    speedup_text,
)
from runner.analysis.environments import is_eager_of
from runner.analysis.estimate import Verdict
from runner.analysis.noise import crowding
from runner.labels import counted, suite_labels, where, where_text

# Usual limits of compiler dashboards. A result beyond a limit gets a warning.
MIN_SPEEDUP = 0.95
MAX_COMPILATION_S = 120.0
MIN_MEMORY_RATIO = 0.9
MESSAGE_LENGTH = 160  # the whole message is in the record and its log

# A disturbance of the rounds gets a warning above these limits.
MOST_STOLEN = 0.01  # share of all CPU time; 1 % of stolen time can fall into a single round
MOST_THROTTLED = 0.01
LEAST_WIDENING = 1.3
CLOCK_SPREAD = 0.05
MINOR_FAULT_S = 0.5e-6  # assumed, with clearing the page; not measured
LEAST_OF_FAULTS = 0.02  # of eager's step
HARMLESS = ("set application clocks",)  # a user fixed the clock, which makes times steadier

Text = Callable[[Comparison], str]


@dataclass(frozen=True, slots=True)
class Rule:
    """``case``: the sentence about a comparison; "" if the rule does not apply."""

    title: str
    case: Text
    advice: str | Text


def findings(comparisons: Sequence[Comparison]) -> tuple[Finding, ...]:
    """Every finding of a run, in the order of RULES. Cases with the same title and advice share a finding."""
    labels = suite_labels(c.record.job.case.suite for c in comparisons)
    cases: dict[tuple[str, str], list[str]] = {}
    for rule in RULES:
        for comparison in comparisons:
            if text := rule.case(comparison):
                advice = rule.advice if isinstance(rule.advice, str) else rule.advice(comparison)
                case = f"{where(comparison.record, labels)}: {text}"
                cases.setdefault((rule.title, advice), []).append(case)
    return tuple(Finding(title=t, cases=tuple(texts), advice=a) for (t, a), texts in cases.items())


# -- candidates without a speedup that counts --------------------------------------


def _wrong(comparison: Comparison) -> str:
    if comparison.record.status is not Status.FAIL_ACCURACY:
        return ""
    parity = comparison.record.parity
    if parity is None:
        return "failed"
    text = f"{parity.failed} of {parity.tensors} tensors differ too much"
    worst = parity.worst
    if worst is None:
        return text
    reason = worst.failure or f"RMS error {worst.candidate_rmse:.3g}, limit {worst.allowed:.3g}"
    text += f"; worst {worst.name}: {reason} (eager's own error {worst.eager_rmse:.3g})"
    text += f" ({parity.found_by})" if parity.found_by else ""
    if parity.lower_precision:
        text += f"; the errors are as large as in {parity.lower_precision}, a lower precision than asked"
    return text + (f"; {where_text(parity.where)}" if parity.where is not None else "")


def _unsteady_eager(comparison: Comparison) -> str:
    parity = comparison.record.parity
    if comparison.record.status is not Status.EAGER_TWO_RUNS_DIFFER:
        return ""
    by = f" by {share_text(parity.eager_spread)} of a tensor's size" if parity is not None else ""
    return f"eager differs from itself{by}"


def _unjudged(comparison: Comparison) -> str:
    parity = comparison.record.parity
    if comparison.record.status is not Status.CANNOT_JUDGE:
        return ""
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


def _ended(*statuses: Status) -> Text:
    return lambda comparison: _failure(comparison.record) if comparison.record.status in statuses else ""


def _failure(record: Record) -> str:
    failure = record.failure
    if failure is None:
        return record.status.value
    message = failure.message
    if len(message) > MESSAGE_LENGTH:
        message = f"{message[:MESSAGE_LENGTH]}..."
    log = f" (log: {failure.log})" if failure.log else ""
    return f"{record.status.value} in phase {failure.phase}: {failure.kind}: {message}{log}"


def _not_compiled(comparison: Comparison) -> str:
    record = comparison.record
    if record.status is not Status.NOT_COMPILED:
        return ""
    return record.status.value if record.failure is None else record.failure.message


def _advice_not_compiled(comparison: Comparison) -> str:
    advice = "The compiler compiled no part of this model, so there is nothing to compare."
    if "RNN" in _not_compiled(comparison):
        return f"{advice} Dynamo leaves RNN, GRU and LSTM to eager (torch._dynamo.config.allow_rnn=False)."
    return f"{advice} With Dynamo, TORCH_LOGS=dynamo prints what it did with the code."


def _advice_out_of_memory(comparison: Comparison) -> str:
    isolated = comparison.record.job.protocol.isolate
    isolate = "" if isolated else ", or add --isolate, so that candidates do not share the memory"
    return f"Use a smaller --batch-size{isolate}."


def _unusable(comparison: Comparison) -> str:
    samples = comparison.record.samples
    if not samples or comparison.speedup is not None:
        return ""
    return f"{len(samples)} rounds, but some times are missing, not positive or not finite"


# -- speedups ------------------------------------------------------------------------


def _moving_control(comparison: Comparison) -> str:
    verdict = comparison.verdict
    if comparison.compiler != CONTROL or verdict not in (Verdict.FASTER, Verdict.SLOWER):
        return ""
    return f"speedup of eager over eager {_speedup(comparison)}, {verdict.value}"


def _moved_between_processes(comparison: Comparison) -> str:
    """Eager of the reference environment must be as fast in a second process as in the first."""
    low, high = comparison.ci_low, comparison.ci_high
    limit = 1 + comparison.record.job.protocol.noise_threshold
    if not _eager_of_reference(comparison) or low is None or high is None:
        return ""
    if 1 / limit <= high and low <= limit:
        return ""
    return f"speedup of eager over eager of the same environment in another process {_speedup(comparison)}"


def _slower_environment(comparison: Comparison) -> str:
    record = comparison.record
    slower = comparison.verdict is Verdict.SLOWER and record.status.passed
    if not slower or not is_eager_of(record) or _eager_of_reference(comparison):
        return ""
    return f"{_speedup(comparison)} relative to eager of {record.job.environments[0].name}"


def _eager_of_reference(comparison: Comparison) -> bool:
    record = comparison.record
    return is_eager_of(record) and record.env == record.job.environments[0].name


def _slow(comparison: Comparison) -> str:
    """Slower, and no open verdict."""
    slower = comparison.verdict is Verdict.SLOWER and (comparison.speedup or 1.0) < MIN_SPEEDUP
    if not slower or not _counts(comparison):
        return ""
    text = _speedup(comparison)
    if comparison.candidate_ms is not None and comparison.baseline_ms is not None:
        text += f", {ms_text(comparison.candidate_ms)} ms (eager {ms_text(comparison.baseline_ms)} ms)"
    return text


def _slow_and_broken(comparison: Comparison) -> str:
    text, breaks = _slow(comparison), comparison.number("graph_breaks")
    return f"{text}, {counted(int(breaks), 'graph break')}" if text and breaks else ""


def _advice_broken(comparison: Comparison) -> str:
    if comparison.value("graph_break_reasons"):
        return "Run these models in eager, or change the lines that break the graph; they are listed above."
    return "Run these models in eager, or add --explain: it names the lines that break the graph."


def _views_only(comparison: Comparison) -> str:
    moves = comparison.number("bytes_per_step") != 0 or comparison.number("flops_per_step")
    if moves or not _counts(comparison) or not comparison.n:
        return ""
    return f"{_speedup(comparison)}, which compares only the cost of a call"


def _slow_compilation(comparison: Comparison) -> str:
    latency, known = comparison.compilation_latency_s or 0.0, comparison.break_even
    steps = "" if known is None else break_even_text(known.steps, known.low, known.high, whole=known.whole)
    until = f", break-even steps: {steps}" if steps else ""
    return f"{seconds_text(latency)} s{until}" if latency > MAX_COMPILATION_S else ""


def _memory(comparison: Comparison) -> str:
    ratio = comparison.memory_ratio
    if not _counts(comparison) or ratio is None or ratio >= MIN_MEMORY_RATIO:
        return ""
    text = f"{ratio:.2f}x"
    if comparison.candidate_peak_gb is not None and comparison.baseline_peak_gb is not None:
        peaks = memory_text(comparison.candidate_peak_gb), memory_text(comparison.baseline_peak_gb)
        text += f", peak {peaks[0]} (eager {peaks[1]})"
    return text


def _unsteady(comparison: Comparison) -> str:
    estimate = comparison.estimate
    if estimate is None or comparison.verdict is not Verdict.UNSTEADY:
        return ""
    return f"{_speedup(comparison)}, but {estimate.unsteady}"


def _open(comparison: Comparison) -> str:
    """An open verdict, and what would probably close it."""
    record = comparison.record
    if comparison.open is None or comparison.verdict is Verdict.UNSTEADY or not record.status.passed:
        return ""
    ended = f" (ended: {record.rounds_ended})" if record.rounds_ended else ""
    text = f"{_speedup(comparison)} after {counted(comparison.n, 'round')}{ended}"
    return f"{text}; needs {comparison.open.closes} ({comparison.open.reason.value})"


# -- disturbances of the rounds -------------------------------------------------------


def _dependent_rounds(comparison: Comparison) -> str:
    estimate = comparison.estimate
    if estimate is None or estimate.widened < LEAST_WIDENING:
        return ""
    return (
        f"{estimate.n} rounds hold the information of {estimate.effective_n:.0f}: the rounds' interval is "
        f"{estimate.widened:.1f} times as wide as independent rounds would make it"
    )


def _lost_time(name: str, most: float) -> Text:
    def case(comparison: Comparison) -> str:
        share = _timed(comparison, name)
        return f"{share:.1%} of the CPU time during the rounds" if share > most else ""

    return case


def _crowded(comparison: Comparison) -> str:
    crowded = crowding(comparison)
    if crowded is None:
        return ""
    switches, cv = crowded
    return f"{switches:.0f} involuntary context switches per second, eager's times vary by {cv:.0%}"


def _page_faults(comparison: Comparison) -> str:
    eager, candidate = (_timed(comparison, f"{side}_minor_faults") for side in ("baseline", "candidate"))
    step_ms = comparison.baseline_ms
    if not _counts(comparison) or not step_ms:
        return ""
    share = abs(eager - candidate) * MINOR_FAULT_S / (step_ms / 1000)
    if share < LEAST_OF_FAULTS:
        return ""
    text = f"{eager:.0f} a step in eager, {candidate:.0f} in the candidate"
    return f"{text}, about {share_text(share)} of eager's time"


def _gpu_held_back(comparison: Comparison) -> str:
    low, high = (_timed(comparison, f"gpu_clock_{end}_mhz") for end in ("min", "max"))
    listed = str(comparison.value("gpu_throttle_reasons") or "")
    reasons = [reason for reason in listed.split("; ") if reason and reason not in HARMLESS]
    if low >= (1 - CLOCK_SPREAD) * high or not reasons:
        return ""
    return f"clock {low:.0f} to {high:.0f} MHz ({', '.join(reasons)})"


def _short_of_memory(comparison: Comparison) -> str:
    retries = _timed(comparison, "allocator_retries")
    return f"the device's allocator freed its cache {retries:.0f} times during the rounds" if retries else ""


def _timed(comparison: Comparison, name: str) -> float:
    """The number of this name; 0 if it is missing, or if no samples can be used."""
    return (comparison.number(name) or 0.0) if comparison.n else 0.0


def _counts(comparison: Comparison) -> bool:
    compiled = comparison.compiler != CONTROL and not is_eager_of(comparison.record)
    return comparison.record.status.passed and compiled


def _speedup(comparison: Comparison) -> str:
    return speedup_text(comparison.speedup, comparison.ci_low, comparison.ci_high)


JUDGED = (Status.FAIL_ACCURACY, Status.EAGER_TWO_RUNS_DIFFER, Status.CANNOT_JUDGE)
NAMED = (*JUDGED, Status.TIMEOUT, Status.NOT_COMPILED, Status.RECOMPILES)
OUT_OF_MEMORY = tuple(status for status in Status if status.out_of_memory)
OTHERS = tuple(s for s in Status if s.counted and not s.passed and s not in (*NAMED, *OUT_OF_MEMORY))

RULES = (
    Rule(
        "Parity failures",
        _wrong,
        "These times are in no average. The commands in report.md run one model again.",
    ),
    Rule(
        "Parity cannot be judged",
        _unsteady_eager,
        "No candidate can be checked. Look for operations in the model that are not deterministic.",
    ),
    Rule("Parity cannot be judged: eager's own results", _unjudged, _advice_unjudged),
    Rule(
        "Timed out",
        _ended(Status.TIMEOUT),
        lambda c: f"Raise --timeout (it was {c.record.job.protocol.timeout_s:g} s), or omit the model.",
    ),
    Rule("Out of memory", _ended(*OUT_OF_MEMORY), _advice_out_of_memory),
    Rule("Not compiled", _not_compiled, _advice_not_compiled),
    Rule(
        "Recompiled in later steps",
        _ended(Status.RECOMPILES),
        "The model is compiled again in later steps. TORCH_LOGS=recompiles prints the cause.",
    ),
    Rule(
        "Could not run",
        _ended(*OTHERS),
        "Read the log. Then run the model alone with its command in report.md.",
    ),
    Rule(
        "Samples that cannot be used",
        _unusable,
        "records.jsonl is damaged or was edited. Measure these candidates again.",
    ),
    Rule(
        "The A/A control moved",
        _moving_control,
        "It should be 1.00x. Stop other work, raise --repeat, and do not trust a difference of this size.",
    ),
    Rule(
        "The A/A control between processes moved",
        _moved_between_processes,
        "Processes differ in speed. Do not trust a difference of this size, or measure with --processes=5.",
    ),
    Rule(
        "Eager is slower in another environment",
        _slower_environment,
        "Speedups over this slow eager look too large. Compare with eager of the reference environment.",
    ),
    Rule(f"Slower than eager, with graph breaks (below {MIN_SPEEDUP:g})", _slow_and_broken, _advice_broken),
    Rule(
        f"Slower than eager (speedup below {MIN_SPEEDUP:g})",
        lambda c: "" if c.number("graph_breaks") else _slow(c),
        "Run these models in eager. No graph broke, so the compiled code itself is slower; "
        "--export-profiler-trace shows which kernels take longer.",
    ),
    Rule(
        "Nothing to compile",
        _views_only,
        "These steps only create views, so no compiler can make them faster. They enter the averages.",
    ),
    Rule(
        f"Long compilation (above {MAX_COMPILATION_S:g} s)",
        _slow_compilation,
        "Compile only for runs with more steps than the break-even steps.",
    ),
    Rule(
        f"More memory than eager (ratio below {MIN_MEMORY_RATIO:g})",
        _memory,
        "Check that the peak fits in the memory of your device. A smaller batch lowers the peak.",
    ),
    Rule(
        "Unsteady rounds",
        _unsteady,
        "The verdict is withheld. The panel in report.html shows the rounds. Measure again later.",
    ),
    Rule(
        "Open verdicts",
        _open,
        "The interval reaches across the noise threshold, so the data do not tell. --repeat sets the rounds, "
        "and --processes=auto adds processes where they close a verdict. A quieter machine needs fewer. A "
        "speedup near the threshold stays open.",
    ),
    Rule(
        "Rounds that depend on each other",
        _dependent_rounds,
        "The machine's speed drifted, and the interval was widened for it. A quieter machine narrows it.",
    ),
    Rule(
        "CPU time stolen by other virtual machines",
        _lost_time("stolen_share", MOST_STOLEN),
        "Other virtual machines share this host: use a dedicated host.",
    ),
    Rule(
        "Stopped by a CPU quota",
        _lost_time("throttled_share", MOST_THROTTLED),
        "The threads use more CPU time than the quota allows: lower --threads, or raise the quota.",
    ),
    Rule(
        "Other work on the same CPUs",
        _crowded,
        "Other work used the CPU during samples: stop it, or lower --threads to leave a CPU free.",
    ),
    Rule(
        "Unequal numbers of page faults",
        _page_faults,
        "A part of the speedup is the allocator's: try --allocator=default, jemalloc or tcmalloc.",
    ),
    Rule(
        "The GPU lowered its clock",
        _gpu_held_back,
        "The clock changed during the rounds: fix it (nvidia-smi -lgc), or let the device cool down.",
    ),
    Rule(
        "The GPU's memory was short",
        _short_of_memory,
        "A step that frees the cache waits for the device. Use a smaller --batch-size, or --isolate.",
    ),
)
