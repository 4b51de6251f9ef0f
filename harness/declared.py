"""How a metric's file declares its numbers: name, unit, where each is shown, how batches are combined.

A module of ``harness/metrics`` has ``METRICS``, a tuple of ``Metric``. Tables, CSV files, report.html,
summary.json and docs/FORMAT.md take their columns and rows from these declarations. The parent, which has
no torch, imports the modules too. So a module imports torch inside its functions only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace

from harness.schema import Scalar

EAGER, CANDIDATE = "baseline_", "candidate_"
SIDES = (EAGER, CANDIDATE)
GIGA, TERA = 1e9, 1e12

# the groups of report.html's panels
GROUPS = ("compilation", "work", "noise", "other", "memory")
COMPILATION, WORK, NOISE, OTHER, MEMORY = GROUPS

ORDER = (
    *("flops_per_step", "tflop_per_s", "share_of_data_sheet", "share_of_measured", "item", "items_per_s"),
    *("energy_ratio", "flop_per_byte", "roof_tflop_per_s", "share_of_roof", "bytes_per_step", "gb_per_s"),
    *("share_of_bandwidth", "measured_peak_tflop_per_s", "measured_bandwidth_gb_per_s", "stolen_share"),
    *("involuntary_switches_per_s", "throttled_share", "gpu_clock_min_mhz", "gpu_clock_max_mhz"),
    *("gpu_throttle_reasons", "allocator_retries", "device_allocations", "saved_activation_bytes"),
    "measured_bandwidth_bytes_per_s",
)
"""The order in which metrics are shown. Metrics without a place here follow, in the order of their files."""


@dataclass(frozen=True, slots=True)
class Column:
    """How tables in console, report.md and report.html show a metric. ``header`` may have two lines.

    ``drop``: the larger, the sooner a narrow table omits it. ``or_else``: the metric that is shown if this
    metric is missing. ``starred_by``: a metric; where it is not 0, the value has a star, which a caveat
    explains.
    """

    header: str
    side: str = ""
    _: KW_ONLY
    drop: int = 40
    or_else: str = ""
    starred_by: str = ""
    operations_only: bool = False  # tables of whole models omit it; CSV files and report.html have it


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """The arithmetic mean over the models that passed."""

    heading: str  # of its column, beside "mean"
    key: str  # summary.json has the counts of models as ``<key>_n``


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The inputs of a derived number: a record's metrics and other facts of the record and the device."""

    numbers: Mapping[str, Scalar]
    environment: Mapping[str, Scalar]
    best: Mapping[str, float]  # the metrics with ``limit``: the largest over all records of the device
    step_s: Mapping[str, float]  # median time of a step, by side; empty if nothing was timed
    comparable: Mapping[str, bool]  # by side: whether it ran in the precision of the limits
    side: str = ""

    def number(self, name: str) -> float | None:
        return finite(self.numbers.get(name))

    def per_s(self, name: str, scale: float = 1.0) -> float | None:
        """The number, which is per step, as a rate per second of this side's median step."""
        return ratio(ratio(self.number(name), self.step_s.get(self.side)), scale)

    def share(self, name: str, limit: float | None) -> float | None:
        """The rate ``per_s`` as a share of a limit of the device."""
        return ratio(self.per_s(name), limit) if self.comparable.get(self.side) else None

    def eager_over_candidate(self, name: str) -> float | None:
        eager, candidate = (self.number(side + name) for side in SIDES)
        return ratio(eager, candidate) if eager else None


@dataclass(frozen=True, slots=True)
class Metric:
    """One number, text or truth value. ``meaning`` is its line in docs/FORMAT.md.

    ``sides``: each of these variants has its own value, and the side is a prefix of the name. ``derive``:
    the value is computed from other metrics when records are read; it is not stored.
    """

    name: str
    unit: str  # "s", "bytes", "share", "ratio"... "text"; "" for counts
    meaning: str
    _: KW_ONLY
    digits: int = 3  # significant digits, for units that do not fix the format
    group: str = OTHER
    sides: tuple[str, ...] = ()
    derive: Callable[[Seen], Scalar] | None = None
    over_batches: str = "last"  # sum | min | max | union | last: how batches of rounds are combined
    limit: bool = False  # a limit of the device: the largest value of all its records counts
    columns: tuple[Column, ...] = ()
    average: Average | None = None
    phase: str = ""  # its label in the chart of the phases of compilation
    explains: str = ""  # for a text of several lines: the heading of its folded section

    @property
    def names(self) -> tuple[str, ...]:
        """Its names in records and reports."""
        return tuple(side + self.name for side in self.sides) or (self.name,)


class Declared:
    """All metrics, in order. ``ValueError`` if two metrics have the same name."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        places = {name: place for place, name in enumerate(ORDER)}
        self.metrics = tuple(sorted(metrics, key=lambda metric: places.get(metric.name, len(ORDER))))
        self.by_name = {name: metric for metric in self.metrics for name in metric.names}
        names = [name for metric in self.metrics for name in metric.names]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two metrics are called {', '.join(twice)}")

    def derived(self, seen: Seen) -> dict[str, Scalar]:
        """All derived metrics of a record, by name."""
        of_side = {side: replace(seen, side=side) for side in SIDES} | {"": seen}
        return {
            name: metric.derive(of_side[side])
            for metric in self.metrics
            if metric.derive is not None
            for side, name in zip(metric.sides or ("",), metric.names, strict=True)
        }

    def of_group(self, group: str) -> tuple[Metric, ...]:
        return tuple(metric for metric in self.metrics if metric.group == group)

    def columns(self) -> tuple[tuple[Column, Metric], ...]:
        return tuple((column, metric) for metric in self.metrics for column in metric.columns)

    def averages(self) -> tuple[Metric, ...]:
        return tuple(metric for metric in self.metrics if metric.average is not None)


def joined(how: str, so_far: Scalar, value: Scalar) -> Scalar:
    """Combines a metric's values of two batches of rounds. None (unknown) in one batch gives None."""
    if how == "last" or so_far is None or value is None:
        return value if how == "last" else None
    if how == "union":
        texts = [part for text in (so_far, value) for part in str(text).split("; ") if part]
        return "; ".join(dict.fromkeys(texts))
    if isinstance(so_far, str) or isinstance(value, str):
        return None
    if how == "sum":
        return so_far + value
    return {"min": min, "max": max}[how](so_far, value)


def ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def finite(value: object) -> float | None:
    """``value`` as a float if it is a finite number, else None. Records may hold anything."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)
