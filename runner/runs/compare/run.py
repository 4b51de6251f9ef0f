"""The data of a run that a comparison needs. Unknown values are absent or None."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.devices import type_of
from harness.schema import Job, Status
from harness.settings import identity
from runner.analysis.estimate import Limits, PairedEstimate
from runner.labels import plain

NO_RECORD = "no record"
"""The status of a planned result without a record: the run ended before it."""

AS_FOUND = "as found"  # compile caches of which it is unknown whether they were warm
WARM, COLD = "warm", "cold"  # compile caches that had, or had not, what the compiler looked up

NAMED_FIRST = ("suite", "mode", "device", "precision", "compiler")
"""Conditions that every table names, in this order."""
UNCOUNTED = tuple(status.value for status in Status if not status.counted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The seconds of a step, round by round, of one side of a job with several environments.

    ``job``: the folder of the run and the job's name; two sides of one job share rounds. ``rounds``: the
    number of the process and the number of the round in it.
    """

    job: tuple[str, str]
    rounds: tuple[tuple[int, int], ...]
    eager_s: tuple[float, ...]
    compiled_s: tuple[float, ...]
    assumed_sd: float  # between processes, of the log speedup


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One model with one compiler in one run.

    ``conditions``: name -> value. Two results with equal conditions are the same measurement. ``machine``:
    facts that must also be equal for a comparison of times. ``speedup``: only of results that passed.
    ``limits``: of the run's verdicts. ``times``: only of an environment of a run. ``*_s`` are medians of a
    step in seconds; ``*_se`` is the standard error of their logarithms.
    """

    name: str
    conditions: dict[str, str]
    machine: dict[str, str] = field(default_factory=dict)
    is_control: bool = False  # eager against itself
    status: str
    limits: Limits
    failure: str = ""
    graph_breaks: int | None = None
    calls_captured: int | None = None  # operations that Dynamo captured
    eager_fallbacks: int | None = None  # functions that Dynamo left to eager
    speedup: PairedEstimate | None = None
    times: Times | None = None
    eager_s: float | None = None
    eager_se: float | None = None
    compiled_s: float | None = None
    compiled_se: float | None = None
    compile_s: float | None = None
    caches: str = AS_FOUND  # or "empty" or "filled" by a flag, or warm, or cold
    memory_ratio: float | None = None  # eager's peak / the compiler's
    crowded: bool = False  # other work used the CPUs during the rounds

    @property
    def compiler(self) -> str:
        return self.conditions["compiler"]

    @property
    def passed(self) -> bool:
        return self.status in (Status.PASS.value, Status.PASS_DUE_TO_SKIP.value)

    @property
    def skipped(self) -> bool:
        """Whether it is in no pass rate."""
        return self.status in UNCOUNTED

    @property
    def title(self) -> str:
        """``tiny_gpt NanoGPT (training, float32, cpu, scale small), inductor``"""
        known = self.conditions
        parts = [known[name] for name in ("mode", "precision", "device")]
        parts += [f"{name} {value}" for name, value in known.items() if name not in NAMED_FIRST and value]
        return plain(f"{known['suite']} {self.name} ({', '.join(parts)}), {self.compiler}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One side of the comparison. ``facts``: of the machine and the programs. ``notes``: sentences.

    ``controls``: A/A controls that are not among the results. Of an environment: eager of the reference
    environment in a second process.
    """

    path: Path
    results: tuple[Result, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    damaged_lines: int = 0
    controls: tuple[Result, ...] = ()


def conditions(job: Job, suite: str, compiler: str, batch: int | None) -> Iterator[tuple[str, str]]:
    """The conditions of a result. ``suite`` and ``compiler``: their labels. ``batch``: the batch that ran."""
    case = job.case
    yield "suite", suite
    yield "mode", case.mode.value
    yield "device", type_of(job.device)
    yield "precision", job.dtype
    yield "compiler", compiler
    yield "scale", case.scale
    yield "batch size", "own" if case.batch_size is None else str(batch)
    yield "changes", " ".join(case.changes)
    yield "options", " ".join(job.option_words)
    own = identity(job.protocol)
    yield "protocol", " ".join(name if value is True else f"{name}={value}" for name, value in own)
