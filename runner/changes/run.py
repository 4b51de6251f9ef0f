"""What a comparison needs of a run, wherever it was read: plain values, unknown ones absent or None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.schema import Status
from runner.changes.statistics import Uncertain
from runner.labels import plain

NO_RECORD = "no record"
"""The status of what a run planned and has no record of: it was ended before."""

UNTOLD = ("suite", "mode", "device", "precision", "compiler")
"""Conditions that every table names anyway, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One model with one compiler in one run.

    ``conditions``: everything that must be equal for two results to be the same thing, by the
    name that a person reads; what is not known is not in it. ``machine``: what must be equal
    besides for their times to be comparable. ``speedup`` is ln(eager / compiled) with its error
    within the run, of results that passed; ``processes``: how many measured it. Times are
    medians of a step in seconds, ``*_se`` the error of their logarithms.
    """

    name: str
    conditions: dict[str, str]
    machine: dict[str, str] = field(default_factory=dict)
    is_control: bool = False  # eager against itself
    status: str | None = None
    failure: str = ""
    graph_breaks: int | None = None
    speedup: Uncertain | None = None
    processes: int = 1
    eager_s: float | None = None
    eager_se: float | None = None
    compiled_s: float | None = None
    compiled_se: float | None = None
    compile_s: float | None = None
    caches: str = ""  # of the compilers, before they began: "empty", "filled", or as they were found
    memory_ratio: float | None = None  # eager's peak / the compiler's

    @property
    def compiler(self) -> str:
        return self.conditions.get("compiler", "compiler")

    @property
    def passed(self) -> bool:
        """A status that is not known but has a time passes: the field's performance files have none."""
        return self.status is None or self.status in (Status.PASS.value, Status.PASS_DUE_TO_SKIP.value)

    @property
    def skipped(self) -> bool:
        return self.status == Status.SKIP.value

    @property
    def title(self) -> str:
        """``tiny_gpt NanoGPT (training, float32, cpu, scale small), inductor``"""
        known = self.conditions
        told = [known[name] for name in ("mode", "precision", "device") if name in known]
        told += [f"{name} {value}" for name, value in known.items() if name not in UNTOLD and value]
        inside = f" ({', '.join(told)})" if told else ""
        suite = f"{known['suite']} " if "suite" in known else ""
        return plain(f"{suite}{self.name}{inside}, {self.compiler}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One side of the comparison. ``facts``: of its machine and programs; ``notes``: sentences.

    ``expected``: a file of statuses and graph breaks to hold a run against, without any time.
    """

    path: Path
    results: tuple[Result, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    expected: bool = False
