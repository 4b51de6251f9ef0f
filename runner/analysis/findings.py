"""The warnings about a run's numbers: each finding has a cause, a number and an advice."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from harness.schema import Record, Status
from runner.analysis.comparison import CONTROL, Comparison, Finding
from runner.analysis.digits import (
    memory_text,
    ms_text,
    seconds_text,
    share_text,
    significant,
    speedup_text,
    steps_text,
)
from runner.analysis.environments import is_eager_of
from runner.analysis.estimate import Verdict
from runner.analysis.measuring_ended import why_measuring_ended
from runner.analysis.noise import crowding
from runner.analysis.verdicts.decision import MOST_PROCESSES, needed
from runner.labels import suite_labels, where, where_text

# Usual limits of compiler dashboards. A result beyond a limit gets a warning.
MIN_SPEEDUP = 0.95
MAX_COMPILATION_S = 120.0
MIN_MEMORY_RATIO = 0.9
MESSAGE_LENGTH = 160  # the whole message is in the record and its log

RuleHit = tuple[str, str, str]
"""The result of a rule for one comparison: (title, text with the number, advice)."""

# A disturbance of the rounds gets a warning above these limits.
MOST_STOLEN = 0.01  # share of all CPU time; 1 % of stolen time can fall into a single round
MOST_THROTTLED = 0.01
LEAST_WIDENING = 1.3
CLOCK_SPREAD = 0.05
MINOR_FAULT_S = 0.5e-6  # assumed, with clearing the page; not measured
LEAST_OF_FAULTS = 0.02  # of eager's step
HARMLESS = ("set application clocks",)  # a user fixed the clock, which makes times steadier


def findings(comparisons: Sequence[Comparison]) -> tuple[Finding, ...]:
    """Every finding of a run, in the order of RULES. Cases with the same title and advice share a finding."""
    labels = suite_labels(c.record.job.case.suite for c in comparisons)
    cases: dict[tuple[str, str], list[str]] = {}
    for rule in RULES:
        for comparison in comparisons:
            hit = rule(comparison)
            if hit is not None:
                title, text, advice = hit
                case = f"{where(comparison.record, labels)}: {text}"
                cases.setdefault((title, advice), []).append(case)
    return tuple(Finding(title=t, cases=tuple(texts), advice=a) for (t, a), texts in cases.items())


def _wrong(comparison: Comparison) -> RuleHit | None:
    record = comparison.record
    if record.status is not Status.FAIL_ACCURACY:
        return None
    advice = (
        "The results of these candidates differ from eager's by more than rounding explains. Their times are "
        "shown, but they do not enter the averages. To run one model again, use its command in report.md."
    )
    return "Parity failures", _parity_text(record), advice


def _parity_text(record: Record) -> str:
    parity = record.parity
    if parity is None:
        return "failed"
    text = f"{parity.failed} of {parity.tensors} tensors differ too much"
    worst = parity.worst
    if worst is None:
        return text
    reason = worst.failure or f"RMS error {worst.candidate_rmse:.3g}, limit {worst.allowed:.3g}"
    found_by = f" ({parity.found_by})" if parity.found_by else ""
    if parity.lower_precision:
        found_by += f"; the errors are as large as in {parity.lower_precision}, a lower precision than asked"
    localized = f"; {where_text(parity.where)}" if parity.where is not None else ""
    text = f"{text}; worst {worst.name}: {reason} (eager's own error {worst.eager_rmse:.3g})"
    return f"{text}{found_by}{localized}"


def _unsteady_eager(comparison: Comparison) -> RuleHit | None:
    record = comparison.record
    if record.status is not Status.EAGER_TWO_RUNS_DIFFER:
        return None
    spread = "eager differs from itself"
    if record.parity is not None:
        spread += f" by {share_text(record.parity.eager_spread)} of a tensor's size"
    advice = (
        "Two runs of eager gave different results, so no candidate can be checked. Look for operations that "
        "are not deterministic."
    )
    return "Parity cannot be judged", spread, advice


def _random(comparison: Comparison) -> RuleHit | None:
    record = comparison.record
    if record.status is not Status.CANNOT_JUDGE:
        return None
    if record.parity is not None and record.parity.unjudged:
        return None
    draws = record.parity.random if record.parity is not None else ""
    text = f"eager draws random numbers ({draws}), and its results change with the seed"
    advice = (
        "A compiler may draw other random numbers than eager, so a difference is no error, and parity cannot "
        "be judged. The time is shown, but it does not enter the averages. With "
        "--inductor-config=fallback_random=True inductor draws the same numbers as eager."
    )
    return "Parity cannot be judged: random numbers", text, advice


def _unjudged(comparison: Comparison) -> RuleHit | None:
    record = comparison.record
    if record.status is not Status.CANNOT_JUDGE or record.parity is None or not record.parity.unjudged:
        return None
    advice = (
        "No error of a compiler could be seen in such results, so this is no pass. Check the model in "
        "float32, with another loss (--loss=sum), with weights and inputs of a usual size, or at a larger "
        "scale."
    )
    return "Parity cannot be judged: eager's own results", record.parity.unjudged, advice


def _could_not_run(comparison: Comparison) -> RuleHit | None:
    record = comparison.record
    judged = (Status.FAIL_ACCURACY, Status.EAGER_TWO_RUNS_DIFFER, Status.CANNOT_JUDGE)
    if record.status.passed or record.status in judged or not record.status.counted:
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
    """Title and advice for a candidate without a speedup."""
    protocol = record.job.protocol
    if record.status is Status.TIMEOUT:
        advice = f"Raise --timeout (it was {protocol.timeout_s:g} s), or omit the model with --exclude."
        return "Timed out", advice
    if record.status.out_of_memory:
        isolate = "" if protocol.isolate else ", or add --isolate, so that candidates do not share the memory"
        return "Out of memory", f"Use a smaller --batch-size{isolate}."
    if record.status is Status.NOT_COMPILED:
        return (
            "Not compiled",
            "The compiler compiled no part of this model, so there is nothing to compare. Read the log.",
        )
    if record.status is Status.RECOMPILES:
        advice = "The model is compiled again in later steps. TORCH_LOGS=recompiles prints the cause."
        return "Recompiled in later steps", advice
    return "Could not run", "Read the log. Then run the model alone with its command in report.md."


def _unusable(comparison: Comparison) -> RuleHit | None:
    samples = comparison.record.samples
    if not samples or comparison.speedup is not None:
        return None
    text = f"{len(samples)} rounds, but some times are missing, not positive or not finite"
    advice = "records.jsonl is damaged or was edited. Measure these candidates again."
    return "Samples that cannot be used", text, advice


def _moving_control(comparison: Comparison) -> RuleHit | None:
    if comparison.compiler != CONTROL or comparison.verdict not in (Verdict.FASTER, Verdict.SLOWER):
        return None
    text = f"speedup of eager over eager {_speedup_text(comparison)}, {comparison.verdict.value}"
    advice = (
        "This speedup should be 1.00x. Either other work disturbed the machine, or there were too few "
        "samples. Stop other work, raise --repeat, and do not trust a difference of this size."
    )
    return "The A/A control moved", text, advice


def _moved_between_processes(comparison: Comparison) -> RuleHit | None:
    """Eager of the reference environment must be as fast in a second process as in the first."""
    record = comparison.record
    if not is_eager_of(record) or record.env != record.job.environments[0].name:
        return None
    low, high = comparison.ci_low, comparison.ci_high
    limit = 1 + record.job.protocol.noise_threshold
    if low is None or high is None or (1 / limit <= high and low <= limit):
        return None
    text = (
        f"speedup of eager over eager of the same environment in another process {_speedup_text(comparison)}"
    )
    advice = (
        "Every environment has a process of its own, and the speed of processes differs because their memory "
        "has different addresses. Do not trust a difference of this size between environments, or measure "
        "with --processes=5."
    )
    return "The A/A control between processes moved", text, advice


def _slower_environment(comparison: Comparison) -> RuleHit | None:
    """Eager is slower in this environment than in the reference environment."""
    record = comparison.record
    if not is_eager_of(record) or record.env == record.job.environments[0].name:
        return None
    if comparison.verdict is not Verdict.SLOWER or not record.status.passed:
        return None
    reference = record.job.environments[0].name
    text = f"{_speedup_text(comparison)} relative to eager of {reference}"
    advice = (
        "A compiler's speedup over this slow eager looks too large. Compare with eager of the reference "
        "environment."
    )
    return "Eager is slower in another environment", text, advice


def _slow(comparison: Comparison) -> RuleHit | None:
    if not _counts(comparison) or comparison.speedup is None or comparison.speedup >= MIN_SPEEDUP:
        return None
    if comparison.verdict is not Verdict.SLOWER:
        return None  # it may be noise; the warning on wide intervals covers it
    text = _speedup_text(comparison)
    if comparison.candidate_ms is not None and comparison.baseline_ms is not None:
        times = [ms_text(ms) for ms in (comparison.candidate_ms, comparison.baseline_ms)]
        text += f", {times[0]} ms (eager {times[1]} ms)"
    breaks = comparison.record.metrics.get("graph_breaks")
    text += f", {breaks} graph breaks" if breaks else ""
    title = f"Slower than eager (speedup below {MIN_SPEEDUP:g})"
    advice = "Run these models in eager, or look for the code that breaks the graph."
    return title, text, advice


def _views_only(comparison: Comparison) -> RuleHit | None:
    moved = comparison.number("bytes_per_step")
    if not _counts(comparison) or not comparison.n or moved != 0 or comparison.number("flops_per_step"):
        return None
    text = f"{_speedup_text(comparison)}, which compares only the cost of a call"
    advice = (
        "These steps only create views. Eager moves no bytes, so a compiler can make nothing faster. The "
        "speedup enters the averages."
    )
    return "Nothing to compile", text, advice


def _slow_compilation(comparison: Comparison) -> RuleHit | None:
    latency = comparison.compilation_latency_s
    if latency is None or latency <= MAX_COMPILATION_S:
        return None
    text = f"{seconds_text(latency)} s"
    if comparison.break_even_steps is not None:
        text += f", break-even steps: {steps_text(comparison.break_even_steps)}"
    title = f"Long compilation (above {MAX_COMPILATION_S:g} s)"
    return title, text, "Compile only for runs with more steps than the break-even steps."


def _memory(comparison: Comparison) -> RuleHit | None:
    ratio = comparison.memory_ratio
    if not _counts(comparison) or ratio is None or ratio >= MIN_MEMORY_RATIO:
        return None
    text = f"{ratio:.2f}x"
    if comparison.candidate_peak_gb is not None and comparison.baseline_peak_gb is not None:
        peaks = [memory_text(gb) for gb in (comparison.candidate_peak_gb, comparison.baseline_peak_gb)]
        text += f", peak {peaks[0]} (eager {peaks[1]})"
    title = f"More memory than eager (ratio below {MIN_MEMORY_RATIO:g})"
    advice = "Check that the peak fits in the memory of your device. A smaller batch lowers the peak."
    return title, text, advice


def _wide(comparison: Comparison) -> RuleHit | None:
    protocol = comparison.record.job.protocol
    if comparison.estimate is None:
        return None
    half = comparison.estimate.rounds_half  # without what rounds cannot narrow
    limit = math.log1p(protocol.ci_width)  # the limit of runner.engine.stopping
    if half is not None and half <= limit:
        return None
    rounds = f"after {comparison.n} round{'s' if comparison.n > 1 else ''}"
    if half is None:
        text = f"{_speedup_text(comparison)}, no interval {rounds}: too few rounds"
    else:
        # an interval narrows with the square root of the number of rounds
        needed = math.ceil(comparison.n * (half / limit) ** 2)
        text = (
            f"{_speedup_text(comparison)}, rounds alone +-{significant(math.expm1(half) * 100, 2)} % {rounds}"
        )
        text += f"; needs about {significant(needed, 2)} rounds"
    return f"Intervals wider than +-{share_text(protocol.ci_width)}", text, why_measuring_ended(comparison)


def _open(comparison: Comparison) -> RuleHit | None:
    """An open verdict, and what would probably close it."""
    estimate, record = comparison.estimate, comparison.record
    if estimate is None or comparison.verdict is not Verdict.INCONCLUSIVE or not record.status.passed:
        return None
    missing = needed(estimate, noise_threshold=record.job.protocol.noise_threshold)
    if missing is None:
        return None
    ways = [f"about {significant(missing.rounds, 2)} rounds"] if missing.rounds else []
    ways += [f"about {missing.processes} processes"] if missing.processes else []
    what = " or ".join(ways) or f"more than {MOST_PROCESSES} processes"
    text = f"{_speedup_text(comparison)}; needs {what}"
    advice = (
        "The interval reaches across the noise threshold, so the data do not tell. --processes=auto adds "
        "processes where they close a verdict, and --repeat sets the rounds. A speedup near the threshold "
        "stays open."
    )
    return "Open verdicts", text, advice


def _unsteady(comparison: Comparison) -> RuleHit | None:
    if comparison.verdict is not Verdict.UNSTEADY or comparison.estimate is None:
        return None
    text = f"{_speedup_text(comparison)}, but {comparison.estimate.unsteady}"
    advice = (
        "The rounds have no common speedup, so the verdict is withheld. The panel of the candidate in "
        "report.html shows the rounds. Measure again, later or on a quieter machine."
    )
    return "Unsteady rounds", text, advice


def _dependent_rounds(comparison: Comparison) -> RuleHit | None:
    estimate = comparison.estimate
    if estimate is None or estimate.widened < LEAST_WIDENING:
        return None
    text = (
        f"{estimate.n} rounds hold the information of {estimate.effective_n:.0f}: the rounds' interval is "
        f"{estimate.widened:.1f} times as wide as independent rounds would make it"
    )
    advice = (
        "The speed of the machine drifted during the rounds, and the interval has been widened for it. A "
        "quieter machine gives a narrower interval."
    )
    return "Rounds that depend on each other", text, advice


def _stolen(comparison: Comparison) -> RuleHit | None:
    share = _timed(comparison, "stolen_share")
    if share is None or share <= MOST_STOLEN:
        return None
    text = f"{share:.1%} of the CPU time during the rounds"
    return (
        "CPU time stolen by other virtual machines",
        text,
        "Other virtual machines share this host: use a dedicated host.",
    )


def _throttled(comparison: Comparison) -> RuleHit | None:
    share = _timed(comparison, "throttled_share")
    if share is None or share <= MOST_THROTTLED:
        return None
    advice = "The threads use more CPU time than the quota allows: lower --threads, or raise the quota."
    return "Stopped by a CPU quota", f"{share:.1%} of the time of the rounds", advice


def _crowded(comparison: Comparison) -> RuleHit | None:
    crowded = crowding(comparison)
    if crowded is None:
        return None
    switches, cv = crowded
    text = f"{switches:.0f} involuntary context switches per second, eager's times vary by {cv:.0%}"
    advice = "Other work used the CPU during samples: stop it, or lower --threads to leave a CPU free."
    return "Other work on the same CPUs", text, advice


def _page_faults(comparison: Comparison) -> RuleHit | None:
    eager, candidate = (_timed(comparison, f"{side}_minor_faults") for side in ("baseline", "candidate"))
    step_ms = comparison.baseline_ms
    if not _counts(comparison) or eager is None or candidate is None or not step_ms:
        return None
    share = abs(eager - candidate) * MINOR_FAULT_S / (step_ms / 1000)
    if share < LEAST_OF_FAULTS:
        return None
    text = f"{eager:.0f} a step in eager, {candidate:.0f} in the candidate, "
    text += f"about {share_text(share)} of eager's time"
    advice = (
        "A part of the speedup is the allocator's, which returns memory to the system and requests it again. "
        "--allocator=default, jemalloc or tcmalloc show the speedup without page faults."
    )
    return "Unequal numbers of page faults", text, advice


def _gpu_held_back(comparison: Comparison) -> RuleHit | None:
    listed = comparison.value("gpu_throttle_reasons")
    low, high = (_timed(comparison, f"gpu_clock_{end}_mhz") for end in ("min", "max"))
    reasons = [r for r in str(listed or "").split("; ") if r and r not in HARMLESS]
    if low is None or high is None or low >= (1 - CLOCK_SPREAD) * high or not reasons:
        return None
    text = f"clock {low:.0f} to {high:.0f} MHz ({', '.join(reasons)})"
    advice = "The clock changed during the rounds: fix it (nvidia-smi -lgc), or let the device cool down."
    return "The GPU lowered its clock", text, advice


def _short_of_memory(comparison: Comparison) -> RuleHit | None:
    retries = _timed(comparison, "allocator_retries")
    if not retries:
        return None
    text = f"the device's allocator freed its cache {retries:.0f} times during the rounds"
    advice = (
        "The device was almost full, and a step that frees the cache waits for the device. Use a smaller "
        "--batch-size, or --isolate, so that candidates do not share the memory."
    )
    return "The GPU's memory was short", text, advice


def _timed(comparison: Comparison, name: str) -> float | None:
    """The number of this name; None if no samples can be used."""
    return comparison.number(name) if comparison.n else None


def _counts(comparison: Comparison) -> bool:
    compiled = comparison.compiler != CONTROL and not is_eager_of(comparison.record)
    return comparison.record.status.passed and compiled


def _speedup_text(comparison: Comparison) -> str:
    return speedup_text(comparison.speedup, comparison.ci_low, comparison.ci_high)


RULES: tuple[Callable[[Comparison], RuleHit | None], ...] = (
    _wrong,
    _unsteady_eager,
    _random,
    _unjudged,
    _could_not_run,
    _unusable,
    _moving_control,
    _moved_between_processes,
    _slower_environment,
    _slow,
    _views_only,
    _slow_compilation,
    _memory,
    _unsteady,
    _wide,
    _open,
    _dependent_rounds,
    _stolen,
    _throttled,
    _crowded,
    _page_faults,
    _gpu_held_back,
    _short_of_memory,
)
