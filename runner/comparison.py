"""What statistics make of a record (Comparison) and of a run (Summary): derived, never stored.

Plain values for the reports: no report does arithmetic beyond choosing digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from harness.schema import Record, Scalar

CONTROL = "eager"
"""The candidate that is eager itself: the A/A control, which must come out 1.00x."""


class Verdict(str, Enum):
    """What the paired samples allow one to say."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """Averages over the records of one compiler in one (suite, mode, device, dtype).

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
