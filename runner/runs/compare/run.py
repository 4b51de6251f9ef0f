"""One side of a comparison: the results of a run, each with the conditions that identify it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.devices import type_of
from harness.schema import AS_FOUND, COLD, WARM, Record, of_environment
from harness.settings import identity
from runner.analysis.comparison import CONTROL, Comparison
from runner.analysis.estimate import PairedEstimate
from runner.analysis.verdicts.compiling import by_round
from runner.labels import compiler_label, plain, ran_batch
from runner.plan.allocators import BOTH, DEFAULT

NO_RECORD = "no record"
"""The status of a planned result without a record: the run ended before it."""

NAMED_FIRST = ("suite", "mode", "device", "precision", "compiler")
"""Conditions that every table names, in this order."""
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
        return {**facts, "allocator": DEFAULT if allocator == BOTH else allocator}

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
