"""The values that measured times give: estimates with intervals, a verdict with its limits, break-even."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from enum import Enum

from harness.schema import Protocol

LARGEST_LOG = math.log(sys.float_info.max)
MOST_NAMED = 50  # processes or compilations that would close an open verdict; more are not named


class Verdict(str, Enum):
    """The relation of the interval of the speedup to the noise threshold."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    UNSTEADY = "unsteady"  # the rounds have no common speedup: the guard withholds the verdict


class Reason(str, Enum):
    """The first condition of a verdict that failed."""

    SIDES = "too few processes"
    TOO_FEW_ROUNDS = "too few rounds"
    TREND = "trend"
    HALVES = "halves differ"
    REGIMES = "two regimes"
    FAMILY = "many comparisons"
    ROUNDS = "rounds"  # the noise of the rounds reaches across the threshold
    PROCESSES = "processes"  # the variation between processes does


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Why a verdict is open, and what would probably close it."""

    reason: Reason
    closes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What decides about a verdict: a smaller change than ``threshold`` does not count."""

    threshold: float
    alpha: float  # of q

    @classmethod
    def of(cls, *protocols: Protocol) -> Limits:
        """Those of the protocol; of several, the stricter; of none, those by default."""
        protocols = protocols or (Protocol(),)
        threshold = max(protocol.noise_threshold for protocol in protocols)
        return cls(threshold=threshold, alpha=min(protocol.alpha for protocol in protocols))

    @property
    def log(self) -> float:
        return math.log1p(self.threshold)


Interval = tuple[float, float]
"""Of a logarithm."""


def exp(log: float) -> float:
    """Infinite beyond the floats, where ``math.exp`` raises: intervals of few scattered rounds get there."""
    return math.exp(log) if log < LARGEST_LOG else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A factor, kept as a logarithm: a speedup, or a change B / A of a speedup or of a time.

    The place of the 90 % interval decides about *same* (two one-sided tests at 5 %). The intervals are None
    if there are too few values. ``error`` is the standard error that the measured values show, without what
    is assumed about processes, with ``df`` degrees of freedom; None if it is unknown.
    """

    log: float
    interval: Interval | None  # 95 %
    interval_90: Interval | None
    p_value: float
    error: float | None
    df: float
    unsteady: str = ""  # why the rounds have no common speedup
    unsteady_kind: Reason | None = None
    segments: tuple[float, ...] = ()  # log speedups of parts of the rounds, for which a verdict must hold

    @property
    def factor(self) -> float:
        return exp(self.log)

    @property
    def low(self) -> float | None:
        return None if self.interval is None else exp(self.interval[0])

    @property
    def high(self) -> float | None:
        return None if self.interval is None else exp(self.interval[1])

    @property
    def low_90(self) -> float | None:
        return None if self.interval_90 is None else exp(self.interval_90[0])

    @property
    def high_90(self) -> float | None:
        return None if self.interval_90 is None else exp(self.interval_90[1])

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval of the logarithm; None if there is no interval."""
        return None if self.interval is None else (self.interval[1] - self.interval[0]) / 2

    def within(self, factor: float) -> bool:
        """Whether the interval contains the factor."""
        return self.interval is not None and self.interval[0] <= math.log(factor) <= self.interval[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEstimate(Estimate):
    """The estimate from n pairs. Times are in seconds; speedups are baseline / candidate.

    The interval is None below 6 pairs.
    """

    n: int
    speedup_of_medians: float
    baseline_median_s: float
    candidate_median_s: float
    processes: int = 1
    between_sd: float | None = None  # of the log speedup between processes; None below 2 processes
    assumed_sd: float | None = None  # the same, assumed (one process); None where it is not in the interval
    rounds_half: float | None = None  # half the width of the rounds' own 95 % interval of the log speedup
    widened: float = 1.0  # that interval's factor for rounds that depend on each other

    @property
    def speedup(self) -> float:
        return self.factor

    @property
    def baseline_ms(self) -> float:
        return self.baseline_median_s * 1e3

    @property
    def candidate_ms(self) -> float:
        return self.candidate_median_s * 1e3

    @property
    def ci_low(self) -> float | None:
        return self.low

    @property
    def ci_high(self) -> float | None:
        return self.high

    @property
    def between_df(self) -> float | None:
        """Degrees of freedom of the interval over processes."""
        return self.df if self.processes > 1 else None

    @property
    def effective_n(self) -> float:
        """The number of independent rounds with the information of these rounds."""
        return self.n / self.widened**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """Base of the classes with an estimate. Without an estimate, numbers are None and ``n`` is 0."""

    estimate: PairedEstimate | None

    @property
    def n(self) -> int:
        return self.estimate.n if self.estimate else 0

    @property
    def baseline_ms(self) -> float | None:
        return self.estimate.baseline_ms if self.estimate else None

    @property
    def candidate_ms(self) -> float | None:
        return self.estimate.candidate_ms if self.estimate else None

    @property
    def speedup(self) -> float | None:
        return self.estimate.speedup if self.estimate else None

    @property
    def ci_low(self) -> float | None:
        return self.estimate.ci_low if self.estimate else None

    @property
    def ci_high(self) -> float | None:
        return self.estimate.ci_high if self.estimate else None

    @property
    def p_value(self) -> float | None:
        return self.estimate.p_value if self.estimate else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Geomean:
    """The geometric mean of ``models`` speedups, with two 95 % intervals.

    ``low``, ``high``: of the mean over *models like these* (Student's t on the logarithms over models); None
    below 2 models. ``these_low``, ``these_high``: of the mean over *these models* (the errors of their own
    measurements alone); None if a model has no interval. None for all without a model.
    """

    models: int = 0
    value: float | None = None
    low: float | None = None
    high: float | None = None
    these_low: float | None = None
    these_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Typical:
    """The geometric mean of several times or counts, with Student's interval; None for a single value."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """The steps after which the time saved equals the time of compiling; ``math.inf``: never.

    ``low`` and ``high`` hold the 95 % intervals of the speedup and, if ``whole``, of the time of several
    compilations: both are at their ends at once, so the interval covers at least 95 %.
    """

    steps: float
    low: float
    high: float
    whole: bool

    @property
    def pays(self) -> str:
        """``yes`` or ``no``; ``open`` if the interval of the speedup contains 1."""
        return "no" if math.isinf(self.low) else "open" if math.isinf(self.high) else "yes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paying:
    """Of ``models`` with a known break-even: how many pay and never pay, and medians (steps).

    ``low`` and ``high``: the medians of the ends of the models' intervals, which bound the median over all;
    None unless all intervals are whole.
    """

    models: int = 0
    pays: int = 0
    never: int = 0
    median_of_paying: float | None = None
    median: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def open(self) -> bool:
        """Whether the median over all is finite and no model pays: such a gain is noise."""
        return not self.pays and self.median is not None and math.isfinite(self.median)
