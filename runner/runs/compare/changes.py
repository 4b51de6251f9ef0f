"""Computes the changes between runs. The values are for the outputs and are never stored.

Two runs: times are paired within a run and not between runs.

    change = ln(speedup in B) - ln(speedup in A)
    its variance = within A + within B + between processes

The interval of a run with several processes contains the third. A run with one process has what its own
report assumes (``verdicts.between``). With several runs of A, the variation between them is measured, and B
is one run more (``verdicts.decision.difference``). Times of two runs have no change with an interval: the
machine may have slowed one model.

Two environments of a run: a round has four times, eager and compiled of A and of B. Each change is estimated
from its ratio in each round. A round that is slow on both sides cancels, and no drift is between the sides.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

import numpy as np

from harness.schema import AS_FOUND, COLD, WARM, Record
from runner.analysis.findings import Known
from runner.analysis.ratios import FEWEST, Round, judged, keys_of, timed_in_both
from runner.analysis.results import (
    CHANGE,
    COMPILATION,
    EAGER_STEP,
    SPEEDUP,
    STEP,
    Estimate,
    PairedEstimate,
    Ratio,
    Side,
)
from runner.analysis.statistics import Floats, Part, geomean, mean_of_logs, paired_speedup, student
from runner.analysis.verdicts import Limits
from runner.analysis.verdicts.between import ASSUMED_ACROSS, assumed_of, pooled
from runner.analysis.verdicts.compiling import by_round, center, paired_ratio, unpaired_ratio
from runner.analysis.verdicts.decision import difference, judged_or_none, over_runs
from runner.runs.compare.run import (
    Difference,
    Matched,
    Member,
    Run,
    differences,
    match,
    representative,
    together,
)

NEW_FAILURE, FIXED, OTHER, SAME = "new failure", "fixed", "other", "same"
ENDINGS = {"New failures": NEW_FAILURE, "Fixed failures": FIXED, "Other endings": OTHER}
"""Of the second run. Other: another failure, or newly skipped or run."""
KIND = itemgetter("compiler", "mode", "device", "precision")  # of conditions
QUANTITIES = (SPEEDUP, EAGER_STEP, STEP, COMPILATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One model with one compiler, in both runs.

    ``ratios``: factors B / A by quantity, as far as they are known: of the speedup over eager, above 1 is
    better; of compiling and, of shared rounds, of a step's times (``eager``, ``step``), above 1 is slower.
    """

    first: Member
    second: Member
    ratios: dict[str, Ratio] = field(default_factory=dict)
    rounds: int = 0  # those that timed both sides; 0: two runs
    comparable: bool = True  # False: their times are not, because a fact of the machine differs

    @property
    def records(self) -> tuple[Record, Record]:
        return self.first.record, self.second.record

    def of(self, quantity: str) -> Estimate | None:
        return self.ratios[quantity].estimate if quantity in self.ratios else None

    @property
    def speedup(self) -> Estimate | None:
        return self.of(SPEEDUP)

    @property
    def compile_factor(self) -> float | None:
        """Of the seconds that both sides show."""
        return self._factor("compile_s") if alike_caches(self.first, self.second) else None

    @property
    def memory_factor(self) -> float | None:
        """Of the memory ratio: above 1, B needs less memory relative to eager."""
        return self._factor("memory_ratio")

    def _factor(self, name: str) -> float | None:
        before, after = (getattr(side.comparison, name) for side in (self.first, self.second))
        counts = self.comparable and self.first.passed and self.second.passed
        return after / before if counts and before and after else None

    @property
    def ending(self) -> str:
        first, second = self.first, self.second
        if first.passed and not second.passed and second.record.status.counted:
            return NEW_FAILURE
        if second.passed and not first.passed and first.record.status.counted:
            return FIXED
        return SAME if first.status == second.status else OTHER


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All shared results of one compiler in one (suite, mode, precision, device), without sweeps' points."""

    compiler: str
    where: str
    changes: tuple[Change, ...]

    @property
    def timed(self) -> list[tuple[PairedEstimate, PairedEstimate]]:
        """The speedups of those that passed with a time in both runs: the averages are over them."""
        both = [(c.first.speedup, c.second.speedup) for c in self.changes if c.speedup is not None]
        return [(before, after) for before, after in both if before and after]

    @property
    def passed(self) -> tuple[int, int]:
        return sum(c.first.passed for c in self.changes), sum(c.second.passed for c in self.changes)

    @property
    def geomeans(self) -> tuple[float | None, float | None]:
        return geomean([a for a, _ in self.timed]).value, geomean([b for _, b in self.timed]).value

    @property
    def means(self) -> dict[str, Estimate | None]:
        """The changes of geometric means, over models."""
        logs = {"speedup": [math.log(after.factor / before.factor) for before, after in self.timed]}
        for name in ("compile", "memory"):
            factors = (getattr(change, f"{name}_factor") for change in self.changes)
            logs[name] = [math.log(factor) for factor in factors if factor]
        return {name: mean_of_logs(values) for name, values in logs.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChanges:
    """Everything that the outputs show. ``incomparable``: why no time is compared for so many pairs."""

    first: Run
    second: Run
    changes: tuple[Change, ...]
    controls: tuple[Change, ...]
    limits: Limits
    drift: PairedEstimate | None  # eager's times in B over those in A: the pseudo-median over models
    incomparable: tuple[tuple[Difference, int], ...]
    matched: Matched

    @property
    def runs(self) -> tuple[Run, ...]:
        return (*(self.first.parts or (self.first,)), self.second)

    @property
    def groups(self) -> tuple[Group, ...]:
        members: dict[tuple[str, str], list[Change]] = {}
        for change in self.changes:
            if not change.second.missing and not change.first.record.job.case.point:
                known = change.first.conditions
                where = ", ".join(known[name] for name in ("suite", "mode", "precision", "device"))
                members.setdefault((change.first.compiler, where), []).append(change)
        return tuple(Group(compiler=c, where=w, changes=tuple(own)) for (c, w), own in members.items())

    @property
    def every(self) -> tuple[Change, ...]:
        """Those of the controls too, because a control can fail."""
        return (*self.changes, *self.controls)

    def counts(self, metric: str) -> Iterator[tuple[Change, int, int]]:
        """The changes that have this metric in both runs, with its values."""
        for change in self.every:
            before, after = change.first.count(metric), change.second.count(metric)
            if before is not None and after is not None:
                yield change, before, after

    @property
    def paired(self) -> bool:
        """Whether the sides are environments of one run, timed in the same rounds."""
        return bool(self.timed) and all(change.rounds for change in self.timed)

    @property
    def timed(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.speedup is not None)

    @property
    def crowded(self) -> tuple[int, ...]:
        """In each run, the number of timed results during which other work used the CPUs."""
        both = [c.first for c in self.timed], [c.second for c in self.timed]
        return tuple(sum(Known(result.comparison).crowded() for result in side) for side in both)


def changes_between(*runs: Run) -> RunChanges:
    """From the first runs, which are one side together, to the last.

    Raises ``UsageError`` if the sides have no common result.
    """
    *bases, second = runs
    # a result that A never measured is ignored; a result that B never measured is a loss
    first = together([replace(run, results=tuple(r for r in run.results if not r.missing)) for run in bases])
    matched = match(first, second)
    alike = [[r for r in a.runs if not differences(r.machine, b.machine)] for a, b in matched.pairs]
    differing = Counter[Difference]()
    changes: list[Change] = []
    pools = _pools(alike)
    for (before, after), own in zip(matched.pairs, alike, strict=True):
        base = _over_runs(own, pools[KIND(own[0].conditions)]) if own else before
        facts = differences(base.machine, after.machine)
        differing.update(facts)
        rounds, ratios = (0, {}) if facts else _ratios(base, after)
        changes.append(Change(first=base, second=after, ratios=ratios, rounds=rounds, comparable=not facts))
    for quantity in QUANTITIES:
        family = [c for c in changes if quantity in c.ratios and not c.first.is_control]
        for change, ratio in zip(family, judged([c.ratios[quantity] for c in family]), strict=True):
            change.ratios[quantity] = ratio
    return RunChanges(
        first=first,
        second=second,
        changes=tuple(change for change in changes if not change.first.is_control),
        controls=tuple(change for change in changes if change.first.is_control),
        limits=Limits.of(*(result.record.job.protocol for run in runs for result in run.results)),
        drift=_drift(changes),
        incomparable=tuple(differing.items()),
        matched=matched,
    )


def _pools(every: Iterable[Sequence[Member]]) -> dict[tuple[str, ...], Part]:
    """By kind of result: what the results of several runs say about how much runs vary."""
    spreads: dict[tuple[str, ...], list[tuple[float, int]]] = {}
    for own in filter(None, every):
        logs, of_kind = [e.log for e in _speedups(own)], spreads.setdefault(KIND(own[0].conditions), [])
        if len(logs) > 1:
            of_kind.append((float(np.std(logs, ddof=1)), len(logs)))
    return {kind: pooled(of_kind, None) for kind, of_kind in spreads.items()}


def _over_runs(own: Sequence[Member], pool: Part) -> Member:
    """A result of several runs. ``pool``: of its kind."""
    shown, timed = representative(own), _speedups(own)
    ratios = dict(shown.comparison.own)
    if "step" in ratios and (len(timed) > 1 or (timed and pool.df)):
        ratios["step"] = replace(ratios["step"], estimate=over_runs(timed, pool))
    known = [result.comparison for result in own if result.passed and result.caches == shown.caches]
    comparison = replace(
        shown.comparison,
        own=ratios,
        compile_s=center([c.compile_s for c in known if c.compile_s]),
        memory_ratio=center([c.memory_ratio for c in known if c.memory_ratio]),
    )
    shares = shown.shares if len(own) < 2 else None
    return replace(shown, comparison=comparison, runs=tuple(own), shares=shares)


def _speedups(results: Iterable[Member]) -> list[PairedEstimate]:
    return [result.speedup for result in results if result.speedup is not None]


def _drift(changes: Sequence[Change]) -> PairedEstimate | None:
    """Each model once: its candidates share their eager times, and its points are not several models."""
    logs_of: dict[tuple[object, ...], list[float]] = {}
    for first, second in ((change.first, change.second) for change in changes if change.comparable):
        before, after = first.comparison.baseline_ms, second.comparison.baseline_ms
        if before and after:
            left_out = ("compiler", *(("batch size", "changes") if first.record.job.case.point else ()))
            model = (first.name, *(item for item in first.conditions.items() if item[0] not in left_out))
            logs_of.setdefault(model, []).append(math.log(after / before))
    ratios = [math.exp(sum(logs) / len(logs)) for logs in logs_of.values()]
    return paired_speedup(ratios, [1.0] * len(ratios)) if ratios else None


def _ratios(first: Member, second: Member) -> tuple[int, dict[str, Ratio]]:
    """The number of shared rounds, and the ratios that are known."""
    apart = 0, {SPEEDUP: difference(first.speedup, second.speedup)}
    rounds, factors = shared_rounds(first, second) or apart
    side = Side(first.compiler)
    return rounds, {
        quantity: Ratio(
            family=CHANGE,
            quantity=quantity,
            place=second.comparison.place,
            record=second.record,
            other=first.record,
            first=side,
            second=side,
            estimate=estimate,
        )
        for quantity, estimate in {**factors, COMPILATION: _compilation(first, second)}.items()
        if estimate is not None
    }


def shared_rounds(first: Member, second: Member) -> tuple[int, dict[str, Estimate | None]] | None:
    """From the rounds that timed both sides: their number, and the factors of the speedup and of the times.

    None for two runs, and below ``FEWEST`` rounds: no interval.
    """
    if not first.shares or first.shares != second.shares or not (first.passed and second.passed):
        return None
    before, after = _by_round(first), _by_round(second)
    rounds, by_process = timed_in_both(before, after)
    if len(rounds) < FEWEST:
        return None

    def factor(newer: Floats, older: Floats, tau: float) -> Estimate | None:
        return judged_or_none(newer, older, by_process, tau)

    (eager_a, compiled_a), (eager_b, compiled_b) = (
        np.array([side[key] for key in rounds]).T for side in (before, after)
    )
    tau = math.hypot(assumed_of(first.record), assumed_of(second.record))
    return len(rounds), {
        SPEEDUP: factor(eager_b / compiled_b, eager_a / compiled_a, tau),
        EAGER_STEP: factor(eager_b, eager_a, ASSUMED_ACROSS),
        STEP: factor(compiled_b, compiled_a, ASSUMED_ACROSS),
    }


def _by_round(result: Member) -> Mapping[Round, tuple[float, float]]:
    """The seconds of eager and compiled; empty if the rounds have no number."""
    samples = result.record.samples
    if samples is None or len(samples.round_index) != len(samples):
        return {}
    times = zip(samples.baseline_s, samples.candidate_s, strict=True)
    return dict(zip(keys_of(samples, apart=True), times, strict=True))


def alike_caches(first: Member, second: Member) -> bool:
    """Whether compile caches were in the same state, as far as is known."""
    states = {first.caches, second.caches}
    return len(states) == 1 or (AS_FOUND in states and states <= {AS_FOUND, WARM, COLD})


def _compilation(first: Member, second: Member) -> Estimate | None:
    """ln(time of compiling in the second / first), of cold starts or of caches in the same state.

    Environments of a run compile in the same rounds, so their times are paired; two runs are not. If the
    first has several runs, the second is one more.
    """
    if not (first.passed and second.passed and second.comparison.compile_s):
        return None
    before, after = (by_round(side.record, COLD) for side in (first, second))
    if first.shares and first.shares == second.shares:
        return paired_ratio(after, before)
    if not (before and after) and not alike_caches(first, second):
        return None
    own = (run for run in first.runs if run.passed and run.caches == first.caches)
    *logs, new = [math.log(side.comparison.compile_s) for side in (*own, second) if side.comparison.compile_s]
    if len(logs) < 2:
        return unpaired_ratio(first.comparison.compilations_s, second.comparison.compilations_s)
    variance = float(np.var(logs, ddof=1)) * (1 + 1 / len(logs))
    return student(new - float(np.mean(logs)), [Part(variance, len(logs) - 1.0)])
