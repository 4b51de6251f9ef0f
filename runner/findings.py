"""What to know before the numbers of a run are used: each finding with its cause, number and advice."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from harness.schema import Record, Status
from runner.comparison import CONTROL, Comparison, Finding, Found, Verdict
from runner.digits import (
    memory_text,
    ms_text,
    seconds_text,
    share_text,
    significant,
    speedup_text,
    steps_text,
)
from runner.environments.compare import is_eager_of
from runner.environments.findings import moved_between_processes, slower_environment
from runner.labels import suite_labels, where
from runner.noise_findings import NOISE_RULES
from runner.statistics import half_width

# The field's limits for what deserves a warning.
MIN_SPEEDUP = 0.95
MAX_COMPILATION_S = 120.0
MIN_MEMORY_RATIO = 0.9
MESSAGE_LENGTH = 160  # the whole message is in the record and its log


def findings(comparisons: Sequence[Comparison]) -> tuple[Finding, ...]:
    """Every finding of a run, the gravest kind first; cases with the same title and advice together."""
    labels = suite_labels(c.record.job.case.suite for c in comparisons)
    cases: dict[tuple[str, str], list[str]] = {}
    for rule in RULES:
        for comparison in comparisons:
            found = rule(comparison)
            if found is not None:
                title, text, advice = found
                case = f"{where(comparison.record, labels)}: {text}"
                cases.setdefault((title, advice), []).append(case)
    return tuple(Finding(title=t, cases=tuple(found), advice=a) for (t, a), found in cases.items())


def _wrong(comparison: Comparison) -> Found | None:
    record = comparison.record
    if record.status is not Status.FAIL_ACCURACY:
        return None
    advice = (
        "These candidates compute something else: their times are shown but enter no average. "
        "Run one again with its command in report.md."
    )
    return "Parity failures", _parity_text(record), advice


def _parity_text(record: Record) -> str:
    parity = record.parity
    if parity is None:
        return "failed"
    text = f"{parity.failed} of {parity.tensors} tensors are off"
    worst = parity.worst
    if worst is None:
        return text
    reason = worst.failure or f"RMS error {worst.candidate_rmse:.3g}, limit {worst.allowed:.3g}"
    return f"{text}; worst {worst.name}: {reason} (eager's own error {worst.eager_rmse:.3g})"


def _unsteady_eager(comparison: Comparison) -> Found | None:
    record = comparison.record
    if record.status is not Status.EAGER_TWO_RUNS_DIFFER:
        return None
    spread = "eager differs from itself"
    if record.parity is not None:
        spread += f" by {share_text(record.parity.eager_spread)} of a tensor's size"
    advice = "Nothing can be said about a candidate here: look for operations that are not deterministic."
    return "Parity cannot be judged", spread, advice


def _could_not_run(comparison: Comparison) -> Found | None:
    record = comparison.record
    judged = (Status.FAIL_ACCURACY, Status.EAGER_TWO_RUNS_DIFFER, Status.SKIP)
    if record.status.passed or record.status in judged:
        return None
    text = record.status.value
    failure = record.failure
    if failure is not None:
        text += f" in phase {failure.phase}: {failure.kind}: {_cut(failure.message)}"
        text += f" (log: {failure.log})" if failure.log else ""
    title, advice = _lost(record)
    return title, text, advice


def _cut(message: str) -> str:
    return message if len(message) <= MESSAGE_LENGTH else f"{message[:MESSAGE_LENGTH]}..."


def _lost(record: Record) -> tuple[str, str]:
    """Title and advice for a candidate that has no number."""
    protocol = record.job.protocol
    if record.status is Status.TIMEOUT:
        advice = f"Raise --timeout (it was {protocol.timeout_s:g} s), or leave the model out with --exclude."
        return "Timed out", advice
    if record.status.out_of_memory:
        isolate = "" if protocol.isolate else ", or --isolate so that candidates do not share the memory"
        return "Out of memory", f"Use a smaller --batch-size{isolate}."
    if record.status is Status.NOT_COMPILED:
        return (
            "Not compiled",
            "The compiler did nothing with this model, so nothing was compared; see the log.",
        )
    if record.status is Status.RECOMPILES:
        advice = "Something changes from step to step and is compiled anew: TORCH_LOGS=recompiles names it."
        return "Compiled again and again", advice
    return "Could not run", "Read the log, then run the model alone with its command in report.md."


def _unusable(comparison: Comparison) -> Found | None:
    samples = comparison.record.samples
    if not samples or comparison.speedup is not None:
        return None
    text = f"{len(samples)} rounds with times that do not pair, or are not positive and finite"
    return "Samples that cannot be used", text, "records.jsonl is damaged or was edited; measure these again."


def _moving_control(comparison: Comparison) -> Found | None:
    if comparison.compiler != CONTROL or comparison.verdict not in (Verdict.FASTER, Verdict.SLOWER):
        return None
    text = f"eager against itself came out {_speedup_text(comparison)}, {comparison.verdict.value}"
    advice = (
        "This must be 1.00x: the machine was not quiet or the samples were too few. Free it of other work, "
        "raise --repeat, and trust no difference of this size."
    )
    return "The A/A control moved", text, advice


def _slow(comparison: Comparison) -> Found | None:
    if not _counts(comparison) or comparison.speedup is None or comparison.speedup >= MIN_SPEEDUP:
        return None
    if comparison.verdict is not Verdict.SLOWER:
        return None  # it may be noise: the warning on wide intervals has it
    text = _speedup_text(comparison)
    if comparison.candidate_ms is not None and comparison.baseline_ms is not None:
        times = [ms_text(ms) for ms in (comparison.candidate_ms, comparison.baseline_ms)]
        text += f", {times[0]} ms against eager's {times[1]} ms"
    breaks = comparison.record.metrics.get("graph_breaks")
    text += f", {breaks} graph breaks" if breaks else ""
    title = f"Slower than eager (speedup below {MIN_SPEEDUP:g})"
    advice = "Leave these models uncompiled, or look for what the compiler could not take in one graph."
    return title, text, advice


def _views_only(comparison: Comparison) -> Found | None:
    work = comparison.work
    if not _counts(comparison) or work is None or work.bytes_per_step != 0 or work.flops_per_step:
        return None
    text = f"{_speedup_text(comparison)}, the time of two calls"
    advice = (
        "These steps are views alone: eager moves no byte, and a compiler has nothing to make faster. "
        "What is compared is the cost of a call, and it counts in the averages."
    )
    return "Nothing to compile", text, advice


def _slow_compilation(comparison: Comparison) -> Found | None:
    latency = comparison.compilation_latency_s
    if latency is None or latency <= MAX_COMPILATION_S:
        return None
    text = f"{seconds_text(latency)} s"
    if comparison.break_even_steps is not None:
        text += f", break-even steps: {steps_text(comparison.break_even_steps)}"
    title = f"Long compilation (above {MAX_COMPILATION_S:g} s)"
    return title, text, "Compiling pays only for runs longer than the break-even steps."


def _memory(comparison: Comparison) -> Found | None:
    ratio = comparison.memory_ratio
    if not _counts(comparison) or ratio is None or ratio >= MIN_MEMORY_RATIO:
        return None
    text = f"{ratio:.2f}x"
    if comparison.candidate_peak_gb is not None and comparison.baseline_peak_gb is not None:
        peaks = [memory_text(gb) for gb in (comparison.candidate_peak_gb, comparison.baseline_peak_gb)]
        text += f", peak {peaks[0]} against eager's {peaks[1]}"
    title = f"More memory than eager (ratio below {MIN_MEMORY_RATIO:g})"
    return title, text, "Check that the peak fits the device that you mean to use; a smaller batch lowers it."


def _wide(comparison: Comparison) -> Found | None:
    protocol = comparison.record.job.protocol
    if comparison.speedup is None or comparison.n == 0:
        return None
    half = half_width(comparison.ci_low, comparison.ci_high)
    limit = math.log1p(protocol.precision)  # as runner.stopping has it
    if half is not None and half <= limit:
        return None
    rounds = f"after {comparison.n} round{'s' if comparison.n > 1 else ''}"
    if half is None:
        text = f"{_speedup_text(comparison)}, no interval {rounds}: too few"
    else:
        # an interval narrows with the square root of the number of rounds
        needed = math.ceil(comparison.n * (half / limit) ** 2)
        text = f"{_speedup_text(comparison)}, +-{significant(math.expm1(half) * 100, 2)} % {rounds}"
        text += f"; about {significant(needed, 2)} would do"
    ended = "--repeat" if protocol.repeat is not None else "the limit on rounds or time"
    advice = f"Measuring ended by {ended}. Use a quieter machine, or raise --repeat to the rounds named."
    return f"Intervals wider than +-{share_text(protocol.precision)}", text, advice


def _counts(comparison: Comparison) -> bool:
    compiled = comparison.compiler != CONTROL and not is_eager_of(comparison.record)
    return comparison.record.status.passed and compiled


def _speedup_text(comparison: Comparison) -> str:
    return speedup_text(comparison.speedup, comparison.ci_low, comparison.ci_high)


RULES: tuple[Callable[[Comparison], Found | None], ...] = (
    _wrong,
    _unsteady_eager,
    _could_not_run,
    _unusable,
    _moving_control,
    moved_between_processes,
    slower_environment,
    _slow,
    _views_only,
    _slow_compilation,
    _memory,
    _wide,
    *NOISE_RULES,
)
