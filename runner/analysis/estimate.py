"""The values that paired samples give: an estimate with its interval, and a verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum


class Verdict(str, Enum):
    """The relation of the interval of the speedup to the noise threshold."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    UNSTEADY = "unsteady"  # the rounds have no common speedup: the guard withholds the verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEstimate:
    """The estimate from n pairs. Times are in seconds; speedups are baseline / candidate.

    The interval is None if n is too small for it (below 6 pairs at 95 %). ``low_90`` and ``high_90`` bound
    the 90 % interval, whose place decides about *same* (two one-sided tests at 5 %).
    """

    n: int
    speedup: float
    ci_low: float | None
    ci_high: float | None
    p_value: float
    speedup_of_medians: float
    baseline_median_s: float
    candidate_median_s: float
    low_90: float | None = None
    high_90: float | None = None
    processes: int = 1
    between_sd: float | None = None  # of the log speedup between processes; None below 2 processes
    between_df: float | None = None  # degrees of freedom of the interval over processes
    assumed_sd: float | None = None  # the same, assumed (one process); None where it is not in the interval
    rounds_half: float | None = None  # half the width of the rounds' own 95 % interval of the log speedup
    widened: float = 1.0  # that interval's factor for rounds that depend on each other
    unsteady: str = ""  # why the rounds have no common speedup
    segments: tuple[float, ...] = ()  # log speedups of parts of the rounds, for which a verdict must hold

    @property
    def effective_n(self) -> float:
        """The number of independent rounds with the information of these rounds."""
        return self.n / self.widened**2

    @property
    def df(self) -> float:
        """The degrees of freedom of the interval."""
        return self.between_df or self.n - 1.0

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval of the log speedup; None if there is no interval."""
        return (
            None if self.ci_low is None or self.ci_high is None else math.log(self.ci_high / self.ci_low) / 2
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """Base of the classes with an estimate. Without an estimate, numbers are None and ``n`` is 0."""

    estimate: PairedEstimate | None

    @property
    def n(self) -> int:
        return self.estimate.n if self.estimate else 0

    @property
    def baseline_ms(self) -> float | None:
        return self.estimate.baseline_median_s * 1e3 if self.estimate else None

    @property
    def candidate_ms(self) -> float | None:
        return self.estimate.candidate_median_s * 1e3 if self.estimate else None

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
