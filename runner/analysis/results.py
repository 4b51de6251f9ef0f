"""The values derived from records: Results, Ratios, and the Summary of a run. They are never stored.

Reports print these values; the only arithmetic of a report is the choice of digits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from harness.declared import finite
from harness.devices import of
from harness.metrics import declared
from harness.schema import Case, Record, Scalar, Status
from runner.analysis.digits import estimate_text, seconds_text
from runner.analysis.verdicts import BreakEven, Open, Paying, Reason, Verdict
from runner.names import plain, reason, suite_labels, where_text
from runner.plan.environments.spec import EAGER
from runner.store.figures import Figures

CONTROL = EAGER  # the candidate that is eager itself: the A/A control, whose speedup should be 1.00x
OPERATION = "operation"  # tag of cases whose rates, and place on the roofline, reports show
TOLD_AFTER = (1, 10, 100)  # steps of a start-up race after which the time is told
STEADINESS = ("baseline_cv", "candidate_cv", "lag_1", "baseline_minor_faults", "candidate_minor_faults")
"""How steady the samples were. ``cv``: standard deviation / mean. ``lag_1``: autocorrelation of the
paired log ratios, near 0 if rounds are independent. Faults: median number of page faults of a step."""

LARGEST_LOG = math.log(sys.float_info.max)

# families
OVER_EAGER = "eager"  # of the job's baseline
OVER_PLAIN = "plain"  # over the same candidate without own settings
SYSTEM = "system malloc"  # over eager, with malloc as the system has it (`--allocator=both` of 0.1.0)
ALLOCATOR = "allocator"  # the factor of a speedup of SYSTEM over that of OVER_EAGER
PAIRS = "candidates"  # candidate over candidate
REFERENCE = "reference"  # over eager of the reference environment
COMPILATIONS = "compilations"
FIRST_STEPS = "first steps"  # of `--start-up`
CHANGE = "change"  # between runs

# quantities
STEP, PREFILL, DECODE = "step", "prefill", "decode"
COMPILATION, FIRST_STEP = "compilation", "first step"
SPEEDUP, EAGER_STEP = "speedup", "eager"  # of a change, whose speedups are B / A; its times, too

# -- estimates ---------------------------------------------------------------------------------------------

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


# -- ratios and results ------------------------------------------------------------------------------------


class Side(NamedTuple):
    """A candidate, and how its process began (``cold``, ``warm``; "": it is the timed process)."""

    name: str
    start: str = ""
    env: str = ""  # the environment


class Place(NamedTuple):
    """What the results of a table have in common. Devices of the same model have the same label."""

    suite: str
    mode: str
    dtype: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times as fast the first side is: the second's time / the first's time, above 1 is faster.

    ``record``: of the first side; ``other``: of the second, None for eager in the rounds of the first.
    ``apart``: the sides are in processes of their own. ``counts``: whether it may enter an average.
    """

    family: str
    quantity: str
    place: Place
    record: Record
    first: Side
    second: Side
    estimate: Estimate | None
    other: Record | None = None
    apart: bool = False
    counts: bool = True
    q_value: float | None = None
    verdict: Verdict | None = None
    open: Open | None = None  # None: the verdict is closed


def same_results(record: Record) -> bool | None:
    """Whether parity between environments passed; None if it was not checked."""
    return None if record.env_parity is None else not record.env_parity.failed


class Average(NamedTuple):
    """The geometric mean of ratios like this (the first) over the models of its place, ``total`` in all."""

    ratio: Ratio
    total: int
    mean: Mean


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result:
    """One record with everything derived from it. A missing number is None.

    ``own``: its ratios by name, as far as they are known: ``step`` (over eager: the speedup), ``prefill``,
    ``decode``, ``plain`` (over itself without own settings), ``system malloc`` and ``allocator``.
    ``derived``: the metrics that ``harness.declared`` derives from the record's metrics, and ``STEADINESS``.
    """

    record: Record
    compiler: str  # the candidate; "eager bfloat16" if its baseline has another precision (no A/A control)
    place: Place
    own: Mapping[str, Ratio]
    compilations_s: tuple[float, ...]  # the times of compiling it: one, or those of ``compilations_of``
    compile_s: float | None  # their geometric mean
    baseline_peak_gb: float | None  # 1e9 bytes
    candidate_peak_gb: float | None
    memory_ratio: float | None  # baseline peak / candidate peak, above 1 is smaller
    break_even: BreakEven | None  # None for eager
    derived: Mapping[str, Scalar] = field(default_factory=dict)

    def __repr__(self) -> str:
        """``inductor: pass, 1.31x [1.28, 1.34], faster, compiled in 3.22 s``: records have many numbers."""
        failure = self.record.failure
        why = "" if failure is None else f" ({reason(f'{failure.kind}: {failure.message}')})"
        numbers = estimate_text(self.estimate) if self.estimate is not None else ""
        verdict = self.verdict.value if self.verdict is not None and self.passed else ""
        compiled = f"compiled in {seconds_text(self.compile_s)} s" if self.compile_s is not None else ""
        facts = (f"{self.status.value}{why}", numbers, verdict, compiled)
        return f"{plain(self.compiler)}: {', '.join(filter(None, facts))}"

    @property
    def status(self) -> Status:
        return self.record.status

    @property
    def passed(self) -> bool:
        """Whether its numbers may enter an average."""
        return self.status.passed

    @property
    def borrowed(self) -> bool:
        """Whether its interval assumes of an accelerator the tau that was measured on a CPU."""
        elsewhere = not self.record.calibrated and of(self.record.job.device).accelerated
        return elsewhere and self.estimate is not None and self.estimate.assumed_sd is not None

    @property
    def device(self) -> str:
        return self.place.device

    @property
    def step(self) -> Ratio | None:
        return self.own.get("step")

    @property
    def estimate(self) -> PairedEstimate | None:
        """Of the speedup; None if no step was timed."""
        known = self.step and self.step.estimate
        return known if isinstance(known, PairedEstimate) else None

    def estimate_of(self, name: str) -> Estimate | None:
        """Of one of its ratios; None if it is not known."""
        return self.own[name].estimate if name in self.own else None

    @property
    def verdict(self) -> Verdict | None:
        return self.step.verdict if self.step else None

    @property
    def open(self) -> Open | None:
        """Why the verdict is open; None if it is closed."""
        return self.step.open if self.step else None

    @property
    def n(self) -> int:
        return self.estimate.n if self.estimate else 0

    @property
    def speedup(self) -> float | None:
        return self.estimate.factor if self.estimate else None

    @property
    def baseline_ms(self) -> float | None:
        return self.estimate.baseline_ms if self.estimate else None

    @property
    def candidate_ms(self) -> float | None:
        return self.estimate.candidate_ms if self.estimate else None

    def value(self, name: str) -> Scalar:
        """The metric of this name, derived or measured; None if it is missing."""
        return self.derived[name] if name in self.derived else self.record.metrics.get(name)

    def number(self, name: str) -> float | None:
        """The metric as a finite number; None for anything else."""
        return finite(self.value(name))

    def explanations(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """What metrics tell in lines of text: (what, lines), as "graph breaks" with reason, file and line."""
        for metric in declared().metrics:
            for name in metric.names if metric.explains else ():
                text = self.record.metrics.get(name)
                lines = text.splitlines() if isinstance(text, str) else ()
                if shown := tuple(line for line in lines if line.strip()):
                    yield metric.explains, shown
        where = self.record.parity.where if self.record.parity is not None else None
        if where is not None and where.bitwise:
            yield "other bits than eager's", (where_text(where),)


class MeanOf(NamedTuple):
    """Arithmetic mean over the ``n`` models that passed and have the number."""

    n: int
    value: float | None


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """Averages over a compiler's records that passed parity, slowdowns included. ``total`` counts all."""

    compiler: str
    place: Place
    total: int
    passed: int
    pass_share: float  # passed / total
    pass_low: float  # 95 % interval of pass_share (Wilson)
    pass_high: float
    mean: Mean  # of the records with a speedup among the passed
    common: Mean  # of those that every compiler of the table passed with a speedup
    system: Mean  # of speedups with malloc as the system has it
    allocator: Mean  # of their factors over the speedups
    break_even: Paying
    means: dict[str, MeanOf]  # of the metrics that have an average, and of ``judged_finely``
    verdicts: dict[str, int]  # number of passed records by verdict
    checked: bool  # whether parity was checked; without it (--performance), ``passed`` counts what ran
    speedups: tuple[float, ...]  # of those that passed

    def fast(self, p: float) -> int:
        """How many passed and are at least ``p`` times as fast as eager: KernelBench's fast_p x ``total``.

        fast_p (Ouyang et al. 2025, arXiv 2502.10517) counts what failed in its denominator.
        """
        return sum(speedup >= p for speedup in self.speedups)


class CompileStart(NamedTuple):
    """The compilations of a candidate that began alike: geometric means by the names of the metrics."""

    comparison: Result
    start: str
    means: Mapping[str, float]
    time: Estimate  # of the whole compilation (s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtaking:
    """When a form has done as many steps as eager that began with it; ``math.inf``: never.

    ``measured``: in every race, among its steps. Otherwise computed from what its start costs beyond eager's
    and from the speedup.
    """

    after: BreakEven
    seconds: float
    measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StartForm:
    """The ``n`` races (``--start-up``) of a candidate that began alike. Seconds count from the built model.

    Or its streams of ``--shapes``, whose steps are calls. ``speedup``: eager's time for all steps / its own.
    ``after``: steps -> seconds, where every race has so many steps. ``curve``: of each step, geometric means.
    ``settled``: the number of the first step that is as fast as later ones, the seconds until its end, and
    the time of a settled step.
    """

    comparison: Result
    start: str
    n: int
    after: Mapping[int, Estimate]
    curve: tuple[float, ...]
    settled_step: float
    settled_s: Estimate
    step_s: float
    stored_bytes: float | None
    overtaking: Overtaking | None  # None for eager, and if it cannot be known
    speedup: Estimate | None  # of streams, as the next
    recompiles: float | None
    status: Status  # of the parity of what was loaded
    failure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """Where a curve crosses a speedup of 1, with its 95 % interval; an end beyond the points is None."""

    at: float  # value of the axis
    low: float | None
    high: float | None
    faster: bool  # the candidate is faster above it, and slower below


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The results of a candidate over an axis of ``--sweep``. ``points``: value -> a result that counts."""

    axis: str
    case: Case  # without this axis
    comparisons: tuple[Result, ...]  # by the value of the axis
    points: Mapping[int, Result]
    crossovers: tuple[Crossover, ...]

    @property
    def family(self) -> tuple[object, ...]:
        """What the curves of all candidates of a model share."""
        first = self.comparisons[0]
        return self.axis, self.case, first.device, first.record.job.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A warning about the numbers, or another list: its title, its cases, and what to do."""

    title: str
    cases: tuple[str, ...]
    advice: str = ""


@dataclass(frozen=True, kw_only=True)  # without slots, for ``labels``
class Summary:
    """A run: its comparisons in plan order, its averages, its warnings and its caveats.

    ``environment`` holds the facts of all workers: every value of a fact, separated by " | ". ``caveats``:
    what the averages do not cover. ``figures``: of parity, by job and candidate, where a report draws them.
    """

    comparisons: tuple[Result, ...]
    groups: tuple[GroupSummary, ...]
    environment: dict[str, Scalar]
    warnings: tuple[Finding, ...] = ()
    caveats: tuple[str, ...] = ()
    ratios: tuple[Ratio, ...] = ()
    averages: tuple[Average, ...] = ()
    compile_starts: tuple[CompileStart, ...] = ()
    start_forms: tuple[StartForm, ...] = ()
    shape_forms: tuple[StartForm, ...] = ()
    curves: tuple[Curve, ...] = ()
    figures: Mapping[tuple[str, str], tuple[Figures, ...]] = field(default_factory=dict)

    @cached_property
    def labels(self) -> dict[str, str]:
        """A short name for each suite."""
        return suite_labels(comparison.record.job.case.suite for comparison in self.comparisons)

    def of(self, family: str) -> tuple[Ratio, ...]:
        """The ratios of a family, in their order."""
        return tuple(ratio for ratio in self.ratios if ratio.family == family)

    def averages_of(self, family: str) -> tuple[Average, ...]:
        return tuple(average for average in self.averages if average.ratio.family == family)
