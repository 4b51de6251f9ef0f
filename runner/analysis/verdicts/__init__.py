"""The words of verdicts, and their limits. The files have what they rest on, and the decision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from harness.schema import Protocol

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
