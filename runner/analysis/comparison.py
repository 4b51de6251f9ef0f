"""The values derived from a record (Comparison) and from a run (Summary). They are never stored.

Reports print these values; the only arithmetic of a report is the choice of digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from harness.declared import NOISE, WORK, finite
from harness.devices import of
from harness.metrics import declared
from harness.schema import Case, Record, Scalar, Status
from runner.analysis.digits import estimate_text, seconds_text
from runner.analysis.estimate import (
    BreakEven,
    Estimate,
    Estimated,
    Geomean,
    Open,
    PairedEstimate,
    Paying,
    Typical,
    Verdict,
)
from runner.labels import plain, reason, suite_labels
from runner.store.figures import Figures

CONTROL = "eager"
"""The candidate that is eager itself: the A/A control, whose speedup should be 1.00x."""

OPERATION = "operation"
"""Tag of cases that are a single operation. Reports show their rates and their place on the roofline."""

STEADINESS = ("baseline_cv", "candidate_cv", "lag_1", "baseline_minor_faults", "candidate_minor_faults")
"""How steady the samples were. ``cv``: standard deviation / mean. ``lag_1``: autocorrelation of the
paired log ratios, near 0 if rounds are independent. Faults: median number of page faults of a step."""

TOLD_AFTER = (1, 10, 100)
"""Steps of a start-up race after which the time is told."""

Numbers = Mapping[str, float | str | None]
"""Numbers and texts by name. A missing value is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Text generation. Prefill ends with the first new token; decode is the rest. Tokens/s are of decode."""

    prefill: PairedEstimate
    decode: PairedEstimate | None  # None when one token was generated
    baseline_tokens_per_s: float | None
    candidate_tokens_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(Estimated):
    """An estimate with its verdict. ``q_value``: over the family that its class names."""

    q_value: float | None
    verdict: Verdict | None
    open: Open | None  # None: the verdict is closed


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Judged):
    """One record with everything derived from it. A missing number is None.

    ``speedup`` is baseline time / candidate time (above 1 is faster): the
    exponential of the Hodges-Lehmann pseudo-median of the paired log ratios.
    ``ci_low`` and ``ci_high`` bound it at 95 %, with the variation between
    processes. ``q_value`` is the Benjamini-Hochberg value over the comparisons
    of the run that passed.
    ``break_even`` is the time of compiling / the time saved per step, where the
    paired speedup gives the time saved; None for eager.

    ``derived``: the metrics that ``harness.declared`` derives from the record's metrics, and ``STEADINESS``.
    """

    record: Record
    compiler: str  # the candidate; "eager bfloat16" if its baseline has another precision (no A/A control)
    device: str  # devices of one model have one label: labels.device_labels
    compilations_s: tuple[float, ...]  # the times of compiling it: one, or those of ``compilations_of``
    compilation_latency_s: float | None  # their geometric mean
    baseline_peak_gb: float | None  # 1e9 bytes
    candidate_peak_gb: float | None
    memory_ratio: float | None  # baseline peak / candidate peak, above 1 is smaller
    break_even: BreakEven | None
    derived: Mapping[str, Scalar] = field(default_factory=dict)
    over_plain: PairedEstimate | None = None  # over the candidate without own settings, in the same rounds
    system: PairedEstimate | None = None  # with malloc as the system has it (`--allocator=both` of 0.1.0)
    allocator: Estimate | None = None  # the factor of `system` over this speedup
    generation: Generation | None = None

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
        assumed = self.estimate is not None and self.estimate.assumed_sd is not None
        return assumed and not self.record.calibrated and of(self.record.job.device).accelerated

    @property
    def compile_s(self) -> float | None:
        return self.compilation_latency_s

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

    @property
    def work(self) -> Numbers | None:
        """Rates of the steps; None if no step was timed."""
        return self._group(WORK) if self.n else None

    @property
    def noise(self) -> Numbers | None:
        """How steady the samples were and what disturbed them; None if no samples can be used."""
        own = {name: finite(self.derived[name]) for name in STEADINESS if name in self.derived}
        return {**own, **self._group(NOISE)} if own else None

    def _group(self, group: str) -> Numbers:
        values = {name: self.value(name) for metric in declared().of_group(group) for name in metric.names}
        return {name: value if isinstance(value, str) else finite(value) for name, value in values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """Arithmetic mean over the ``n`` models that passed and have the number."""

    n: int
    value: float | None


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """Averages over the records of one compiler in one (suite, mode, device, dtype).

    Devices of the same model form one group. Only records that passed parity
    enter the averages. ``total`` counts every record and is the denominator of
    ``pass_share``. Slowdowns enter the averages unchanged.
    """

    compiler: str
    suite: str
    mode: str
    device: str
    dtype: str
    total: int
    passed: int
    pass_share: float  # passed / total
    pass_low: float  # 95 % interval of pass_share (Wilson)
    pass_high: float
    mean: Geomean  # of the records with a speedup among the passed
    common: Geomean  # of those that every compiler of the table passed with a speedup
    system: Geomean  # of speedups with malloc as the system has it
    allocator: Geomean  # of their factors over the speedups
    judged: Mean  # share of values that were judged to 1 % or better
    break_even: Paying
    means: dict[str, Mean]  # of the metrics that have an average
    verdicts: dict[str, int]  # number of passed records by verdict
    checked: bool  # whether parity was checked; without it (--performance), ``passed`` counts what ran


@dataclass(frozen=True, slots=True, kw_only=True)
class AcrossEnvironments(Judged):
    """One (environment, compiler) against eager of the reference environment, round by round.

    ``compiler`` is "eager" for the environment's own eager. The numbers have the meaning of ``Comparison``;
    the family of ``q_value`` is all ``AcrossEnvironments`` of a run. ``same_results``: whether
    cross-environment parity passed; None if it was not checked. ``counts``: whether the speedup may enter
    an average.
    """

    record: Record
    environment: str
    reference: str
    compiler: str
    same_results: bool | None
    counts: bool


@dataclass(frozen=True, slots=True)
class EnvironmentAverage:
    """As ``GroupSummary``, for the models of one (environment, compiler), mode, device and dtype."""

    suite: str
    mode: str
    device: str
    dtype: str
    environment: str
    compiler: str
    versions: str
    total: int
    mean: Geomean


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatePair(Judged):
    """One candidate over another in the same rounds: ``speedup`` is the second's time / the first's time."""

    first: Comparison
    second: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileStart:
    """The ``n`` compilations of a candidate that began alike: geometric means by the names of the metrics."""

    comparison: Comparison
    start: str
    n: int
    means: Mapping[str, float]
    time: Typical  # of the whole compilation (s)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilePair:
    """Two compilations of a job in the same rounds: ``ratio`` is the second's time / the first's time."""

    first: Comparison
    first_start: str  # cold or warm
    second: Comparison
    second_start: str
    ratio: Estimate
    q_value: float | None
    verdict: Verdict | None
    needed: int | None  # compilations of each that would probably close an open verdict; None: over 50


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

    comparison: Comparison
    start: str
    n: int
    after: Mapping[int, Typical]
    curve: tuple[float, ...]
    settled_step: float
    settled_s: Typical
    step_s: float
    stored_bytes: float | None
    overtaking: Overtaking | None  # None for eager, and if it cannot be known
    speedup: Typical | None  # of streams, as the next
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
    comparisons: tuple[Comparison, ...]  # by the value of the axis
    points: Mapping[int, Comparison]
    crossovers: tuple[Crossover, ...]

    @property
    def family(self) -> tuple[object, ...]:
        """What the curves of all candidates of a model share."""
        first = self.comparisons[0]
        return self.axis, self.case, first.device, first.record.job.dtype


@dataclass(frozen=True, slots=True)
class CompilerRatio:
    """The mean of ``CandidatePair`` over the models of a suite, mode, device and dtype."""

    suite: str
    mode: str
    device: str
    dtype: str
    first: str
    second: str
    mean: Geomean


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A warning about the numbers: its title, its cases with their numbers, and what to do."""

    title: str
    cases: tuple[str, ...]
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run: its comparisons in plan order, its averages, its warnings and its caveats.

    ``environment`` holds the facts of all workers. If workers differ in a fact,
    it holds every value, separated by " | ". ``caveats`` are sentences on what
    the averages do not cover. ``figures``: of parity, by job and candidate, where
    a report draws them.
    """

    comparisons: tuple[Comparison, ...]
    groups: tuple[GroupSummary, ...]
    environment: dict[str, Scalar]
    warnings: tuple[Finding, ...] = ()
    caveats: tuple[str, ...] = ()
    across: tuple[AcrossEnvironments, ...] = ()
    across_averages: tuple[EnvironmentAverage, ...] = ()
    pairs: tuple[CandidatePair, ...] = ()
    ratios: tuple[CompilerRatio, ...] = ()
    compile_starts: tuple[CompileStart, ...] = ()
    compile_pairs: tuple[CompilePair, ...] = ()
    start_forms: tuple[StartForm, ...] = ()
    shape_forms: tuple[StartForm, ...] = ()
    curves: tuple[Curve, ...] = ()
    figures: Mapping[tuple[str, str], tuple[Figures, ...]] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """A short name for each suite."""
        return suite_labels(comparison.record.job.case.suite for comparison in self.comparisons)
