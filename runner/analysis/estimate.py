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
    RUNS = "runs"  # the variation between the runs of a base (--compare) does


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Why a verdict is open, and what would probably close it."""

    reason: Reason
    closes: str
    pairs: int | None = None  # of compilations that would; None: unknown, or over ``MOST_NAMED``


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
    """A factor, kept as a logarithm: a speedup, a change B / A, a geometric mean of ``n`` times or counts.

    The place of the 90 % interval decides about *same* (two one-sided tests at 5 %). The intervals are None
    if there are too few values. ``error`` is the standard error that the measured values show, without what
    is assumed about processes, with ``df`` degrees of freedom; None if it is unknown.
    """

    log: float
    interval: Interval | None = None  # 95 %
    interval_90: Interval | None = None
    p_value: float = 1.0
    error: float | None = None
    df: float = math.inf
    n: int = 1
    processes: int = 1
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


def single(value: float) -> Estimate:
    """A value that was measured once."""
    return Estimate(log=math.log(value) if value > 0 else -math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRounds(Estimate):
    """An estimate from rounds, of one process or several, or from ``runs`` of other days."""

    assumed_sd: float | None = None  # between processes, assumed (one process); None: not in the interval
    rounds_half: float | None = None  # half the width of the rounds' own 95 % interval of the log speedup
    runs: tuple[OfRounds, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEstimate(OfRounds):
    """The estimate from n pairs. Times are in seconds; speedups are baseline / candidate.

    The interval is None below 6 pairs.
    """

    speedup_of_medians: float
    baseline_median_s: float
    candidate_median_s: float
    between_sd: float | None = None  # of the log speedup between processes; None below 2 processes
    widened: float = 1.0  # that interval's factor for rounds that depend on each other

    @property
    def baseline_ms(self) -> float:
        return self.baseline_median_s * 1e3

    @property
    def candidate_ms(self) -> float:
        return self.candidate_median_s * 1e3

    @property
    def effective_n(self) -> float:
        """The number of independent rounds with the information of these rounds."""
        return self.n / self.widened**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """The geometric mean of ``models`` factors, with two 95 % intervals.

    ``over``: for *models like these* (Student's t on the logarithms over models), without an interval below 2
    models. ``these``: for *these models* (the errors of their own measurements alone), without an interval if
    a model has none. None for both without a model.
    """

    models: int = 0
    over: Estimate | None = None
    these: Estimate | None = None

    @property
    def value(self) -> float | None:
        return self.over.factor if self.over else None


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

    ``low`` and ``high``: the medians of the ends of their intervals; None unless all intervals are whole.
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
