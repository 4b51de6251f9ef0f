"""The two sides of a comparison: results, each with the conditions that identify it, and their pairs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.devices import type_of
from harness.schema import AS_FOUND, COLD, WARM, Record, of_environment
from harness.settings import identity
from runner.analysis.estimate import PairedEstimate
from runner.analysis.results import CONTROL, Comparison
from runner.analysis.verdicts.compiling import by_round
from runner.errors import UsageError
from runner.labels import compiler_label, plain, ran_batch

NO_RECORD = "no record"
"""The status of a planned result without a record: the run ended before it."""

NAMED_FIRST = ("suite", "mode", "device", "precision", "compiler")
"""Conditions that every table names, in this order."""
OUTSIDE = "what is set outside of this program"
TIMING_FACTS = ("device_name", "cpu", "cpus_usable", "threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One model with one compiler in one run.

    ``conditions``: name -> value; two results with equal conditions are the same measurement. ``missing``:
    it was planned and has no record. ``shares``: of an environment of a run, the folder and the job; two
    sides of one job share their rounds.
    """

    comparison: Comparison
    conditions: dict[str, str]
    missing: bool = False
    shares: tuple[str, str] | None = None

    @property
    def record(self) -> Record:
        return self.comparison.record

    @property
    def name(self) -> str:
        return plain(self.record.job.case.name)

    @property
    def compiler(self) -> str:
        return self.conditions["compiler"]

    @property
    def is_control(self) -> bool:
        """Eager against itself; not eager of another environment, whose baseline is the reference's eager."""
        job = self.record.job
        if job.environments:
            return self.record.candidate == of_environment(CONTROL, job.environments[0].name)
        return compiler_label(self.record) == CONTROL

    @property
    def machine(self) -> dict[str, str]:
        """The facts that must also be equal for a comparison of times."""
        facts = facts_of(self.record.environment, TIMING_FACTS)
        allocator = self.record.job.extras.allocator
        facts["allocator"] = "default" if allocator == "both" else allocator  # both: of 0.1.0
        if (outside := self.record.environment.get("compiler_settings")) is not None:
            facts[OUTSIDE] = str(outside)
        return facts

    @property
    def status(self) -> str:
        return NO_RECORD if self.missing else self.record.status.value

    @property
    def passed(self) -> bool:
        return self.record.status.passed

    @property
    def skipped(self) -> bool:
        """Whether it is in no pass rate."""
        return not self.record.status.counted

    @property
    def speedup(self) -> PairedEstimate | None:
        """Only of a result that passed, with an error that can be known."""
        estimate = self.comparison.estimate if self.passed else None
        return estimate if estimate is not None and estimate.error is not None else None

    @property
    def caches(self) -> str:
        """The state of the compile caches before the compilation, as far as the compiler says it."""
        if by_round(self.record, COLD):  # their times count, and not that of the timed process
            return COLD
        if self.count("compile_cache_hits"):
            return WARM
        return COLD if self.count("compile_cache_misses") else AS_FOUND

    def count(self, metric: str) -> int | None:
        value = self.record.metrics.get(metric)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def title(self) -> str:
        """``tiny_gpt NanoGPT (training, float32, cpu, scale small), inductor``"""
        known = self.conditions
        parts = [known[name] for name in ("mode", "precision", "device")]
        parts += [f"{name} {value}" for name, value in known.items() if name not in NAMED_FIRST and value]
        return plain(f"{known['suite']} {self.name} ({', '.join(parts)}), {self.compiler}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One side of the comparison. ``facts``: of the machine and the programs. ``notes``: sentences."""

    path: Path
    results: tuple[Result, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    damaged_lines: int = 0


def facts_of(facts: Mapping[str, object], names: Iterable[str]) -> dict[str, str]:
    """The facts with these names that are known. A CPU that is the device is named once."""
    known = {name: str(facts[name]) for name in names if facts.get(name) not in (None, "")}
    if known.get("cpu") == known.get("device_name"):
        known.pop("cpu", None)
    return known


def conditions(record: Record, labels: Mapping[str, str]) -> dict[str, str]:
    """The conditions of a result. ``labels``: of suites."""
    job, case = record.job, record.job.case
    ran = "own" if case.batch_size is None else str(ran_batch(record))
    own = (name if value is True else f"{name}={value}" for name, value in identity(job.protocol))
    return {
        "suite": labels[case.suite],
        "mode": case.mode.value,
        "device": type_of(job.device),
        "precision": job.dtype,
        "compiler": compiler_label(record),
        "scale": case.scale,
        "batch size": "" if "batch" in case.at else ran,  # a swept batch is among the changes
        "changes": " ".join(case.changes),
        "options": " ".join(job.option_words),
        "protocol": " ".join(own),
    }


# -- pairs of the results of two runs ------------------------------------------------------

Difference = tuple[str, str, str]
"""(name of the condition, value in A, value in B)"""

SAME_SUBJECT = ("suite", "mode", "compiler")
"""Results that differ in one of these are different subjects, not one subject under two conditions."""

Mismatch = tuple[Result, Result, tuple[Difference, ...]]
"""A model that both runs measured with one compiler, but under different conditions."""


def match(
    first: Run, second: Run
) -> tuple[list[tuple[Result, Result]], list[Mismatch], list[Result], list[Result]]:
    """Pairs of results with equal conditions, mismatches, and what only A or only B has.

    A mismatch is a result with the nearest one of the same subject. Each result appears once. Raises
    ``UsageError`` if the runs have no common result.
    """
    ours, theirs = _by_identity(first), _by_identity(second)
    subjects: dict[tuple[str, ...], list[Result]] = {}
    for key, result in theirs.items():
        if key not in ours:
            subjects.setdefault(_subject(result), []).append(result)
    pairs, mismatches, only_first = [], [], []
    for key, result in ours.items():
        others = subjects.get(_subject(result), [])
        if key in theirs:
            pairs.append((result, theirs[key]))
        elif same := next((other for other in others if _batch_is_unknown(result, other)), None):
            others.remove(same)
            pairs.append((result, same))
        elif not others:
            only_first.append(result)
        else:
            nearest = min(others, key=lambda other: len(differences(result.conditions, other.conditions)))
            others.remove(nearest)
            mismatches.append((result, nearest, differences(result.conditions, nearest.conditions)))
    if not pairs:
        raise _nothing_in_common(first, second, mismatches)
    return pairs, mismatches, only_first, list(itertools.chain(*subjects.values()))


def _batch_is_unknown(first: Result, second: Result) -> bool:
    """Whether they differ in the batch alone, and one failed: before its batch ran, or at smaller ones."""
    planned = {side.record.job.case.batch_size for side in (first, second)}
    unknown = any(side.record.model is None or side.record.samples is None for side in (first, second))
    names = [name for name, *_ in differences(first.conditions, second.conditions)]
    return unknown and len(planned) == 1 and names == ["batch size"]


def _subject(result: Result) -> tuple[str, ...]:
    return result.name, *(result.conditions[name] for name in SAME_SUBJECT)


def _by_identity(run: Run) -> dict[tuple[object, ...], Result]:
    results: dict[tuple[object, ...], Result] = {}
    for result in run.results:
        key = (result.name, *result.conditions.items())
        if key in results:
            raise UsageError(
                f"--compare: {run.path} has two results of {result.title}; compare runs that have one of each"
            )
        results[key] = result
    return results


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[Difference, ...]:
    """The conditions or facts that both state with different values."""
    return tuple(
        (name, value or "none", second[name] or "none")
        for name, value in first.items()
        if second.get(name, value) != value
    )


def _nothing_in_common(first: Run, second: Run, mismatches: Sequence[Mismatch]) -> UsageError:
    here, there = f"--compare: {first.path} and {second.path}", "compare two runs of the same models"
    if mismatches:
        result, _, ((name, old, new), *_) = mismatches[0]
        return UsageError(
            f"{here} measured nothing in the same way (of {result.name}, {name} is {old} in the first and "
            f"{new} in the second); {there} under the same conditions"
        )
    if not {result.name for result in first.results} & {result.name for result in second.results}:
        return UsageError(f"{here} share no model; {there}")
    for name in SAME_SUBJECT:
        before, after = ({result.conditions[name] for result in run.results} for run in (first, second))
        if not before & after:
            values = f"{', '.join(sorted(before))} in the first, {', '.join(sorted(after))} in the second"
            return UsageError(f"{here} share models but no {name} ({values}); {there} with the same {name}")
    return UsageError(f"{here} share no model with the same compiler in the same mode; {there}")
