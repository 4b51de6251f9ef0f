"""What statistics make of a record (Comparison) and of a run (Summary): derived, never stored.

Plain values for the reports: no report does arithmetic beyond choosing digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from harness.schema import Record, Scalar

CONTROL = "eager"
"""The candidate that is eager itself: the A/A control, which must come out 1.00x."""

OPERATION = "operation"
"""Tag of cases that are a single operation: their rates are shown, and their place on the roofline."""


class Verdict(str, Enum):
    """What the paired samples allow one to say."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the steps achieve. Rates come from the median step; a share of a peak is 1 at the peak (MFU).

    ``item`` is what ``*_items_per_s`` count: "tokens", "images", "samples". Energy
    is of one step. Eager has no share where it runs in another precision.
    """

    flops_per_step: float | None
    baseline_tflop_per_s: float | None
    candidate_tflop_per_s: float | None
    baseline_share_of_data_sheet: float | None
    candidate_share_of_data_sheet: float | None
    baseline_share_of_measured: float | None
    candidate_share_of_measured: float | None
    item: str | None
    baseline_items_per_s: float | None
    candidate_items_per_s: float | None
    energy_ratio: float | None  # baseline / candidate, above 1 is less energy
    flop_per_byte: float | None = None  # of eager's operations, nothing fused: the place on the roofline
    roof_tflop_per_s: float | None = None  # there: measured bandwidth x flop_per_byte, or the measured peak
    baseline_share_of_roof: float | None = None
    candidate_share_of_roof: float | None = None  # may pass 1: what is fused moves fewer bytes
    bytes_per_step: float | None = None  # 0 for a step of views alone
    baseline_gb_per_s: float | None = None  # 1e9 bytes; of eager's traffic, for the candidate too
    candidate_gb_per_s: float | None = None
    baseline_share_of_bandwidth: float | None = None  # above 1 where caches hold what is moved
    candidate_share_of_bandwidth: float | None = None
    measured_peak_tflop_per_s: float | None = None
    measured_bandwidth_gb_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How steady the samples were, and what disturbed them. A number that does not exist is None."""

    baseline_cv: float | None  # coefficient of variation: standard deviation / mean
    candidate_cv: float | None
    lag_1: float | None  # autocorrelation of the paired log ratios; near 0 if rounds are independent
    baseline_minor_faults: float | None  # median of a step
    candidate_minor_faults: float | None
    stolen_share: float | None  # of the time of all CPUs during the rounds
    involuntary_switches_per_s: float | None
    throttled_share: float | None  # of the rounds, stopped by a CPU quota
    gpu_clock_min_mhz: float | None
    gpu_clock_max_mhz: float | None
    gpu_throttle_reasons: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the step, compared on its own as the whole step is."""

    baseline_ms: float
    candidate_ms: float
    speedup: float
    ci_low: float | None
    ci_high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Text generation: prefill is up to the first new token, decode the rest. Tokens/s are of decode."""

    prefill: Part
    decode: Part | None  # None when one token was generated
    baseline_tokens_per_s: float | None
    candidate_tokens_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One record with everything derived from it. A number that does not exist is None.

    ``speedup`` is baseline time / candidate time (above 1 is faster), the
    exponential of the Hodges-Lehmann pseudo-median of the paired log-ratios.
    ``ci_low``/``ci_high`` bound it at 95 %. ``q_value`` is the Benjamini-Hochberg
    value over the whole run's family of comparisons. ``break_even_steps`` is
    compilation latency / time saved per step, with the time saved taken from
    the paired speedup; ``math.inf`` when the candidate is slower; None when
    unknown, which includes an interval that has 1 in it: whether any time is
    saved is then not known.
    """

    record: Record
    compiler: str  # the candidate; "eager bfloat16" where its baseline has another precision: no A/A control
    device: str  # equal where devices are: labels.device_labels
    n: int
    baseline_ms: float | None
    candidate_ms: float | None
    speedup: float | None
    ci_low: float | None
    ci_high: float | None
    p_value: float | None
    q_value: float | None
    verdict: Verdict | None
    speedup_of_medians: float | None
    compilation_latency_s: float | None
    baseline_peak_gb: float | None  # 1e9 bytes
    candidate_peak_gb: float | None
    memory_ratio: float | None  # baseline peak / candidate peak, above 1 is smaller
    break_even_steps: float | None
    work: Work | None = None
    noise: Noise | None = None
    generation: Generation | None = None
    processes: int | None = None  # that the samples come from
    between_sd: float | None = None  # of the logarithm of the speedup, between processes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """Averages over the records of one compiler in one (suite, mode, device, dtype).

    Several devices of one model are one device here.

    Only records that passed parity enter the averages; ``total`` is the
    denominator and counts every record. Slowdowns count as slowdowns.
    """

    compiler: str
    suite: str
    mode: str
    device: str
    dtype: str
    total: int
    passed: int
    pass_share: float  # passed / total
    averaged: int  # records with a speedup among the passed: the n of the geometric mean
    geomean_speedup: float | None
    geomean_low: float | None  # 95 % interval over models (Student t on log speedups); None below 2
    geomean_high: float | None
    compilation_n: int  # records with a compilation latency among the passed
    mean_compilation_latency_s: float | None
    memory_n: int  # records with a memory ratio among the passed
    mean_memory_ratio: float | None
    verdicts: dict[str, int]  # how many of the passed were faster, slower, same, inconclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class AcrossEnvironments:
    """One (environment, compiler) against eager of the reference environment, round by round.

    ``compiler`` is "eager" for the environment's own eager. Everything is as in ``Comparison``,
    ``q_value`` over all of these of a run. ``same_results`` says whether the environment's eager computes
    what the reference's does; None where that was not checked. ``counts``: whether the
    speedup may enter an average.
    """

    record: Record
    environment: str
    reference: str
    compiler: str
    n: int
    reference_ms: float | None
    ms: float | None
    speedup: float | None
    ci_low: float | None
    ci_high: float | None
    p_value: float | None
    q_value: float | None
    verdict: Verdict | None
    same_results: bool | None
    counts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentAverage:
    """Over the models of one (environment, compiler), mode, device and dtype: as in ``GroupSummary``."""

    environment: str
    versions: str
    compiler: str
    suite: str
    mode: str
    device: str
    dtype: str
    total: int
    averaged: int
    geomean_speedup: float | None
    geomean_low: float | None
    geomean_high: float | None


Found = tuple[str, str, str]
"""What a rule finds of one comparison: (title, case with its number, advice)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to know before the numbers are used: what it is, where with its number, what to do."""

    title: str
    cases: tuple[str, ...]
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run: its comparisons in plan order, its averages, and what to know about them.

    ``environment`` holds the facts of every worker; a fact on which workers
    differ holds all its values, separated by " | ". ``caveats`` are sentences
    on what the averages do not cover.
    """

    comparisons: tuple[Comparison, ...]
    groups: tuple[GroupSummary, ...]
    environment: dict[str, Scalar]
    warnings: tuple[Finding, ...] = ()
    caveats: tuple[str, ...] = ()
    across: tuple[AcrossEnvironments, ...] = ()
    across_averages: tuple[EnvironmentAverage, ...] = ()
