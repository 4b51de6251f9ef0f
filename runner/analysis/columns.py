"""The columns of a result: each number and word of a ``Comparison``, declared once, in ``columns.toml``.

Data frames, CSV files, summary.json, the dashboard's JSON and report.html walk ``columns()``, in its order. A
metric's file declares its own numbers (``harness.declared``); they follow the columns of ``columns.toml``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from harness.loading.toml_file import read_toml
from harness.metrics import declared
from harness.schema import Scalar
from runner.analysis.comparison import Comparison
from runner.analysis.estimate import Reason
from runner.labels import case_name, notes_of, ran_batch, suite_labels
from runner.plan.environments.plan import split_candidate

if TYPE_CHECKING:
    import pandas as pd

KEY, RESULT, SIZE, PARITY, STEADINESS, GENERATION, RECORD = (
    *("key", "result", "size", "parity", "steadiness", "generation", "record"),
)
"""The groups of ``columns.toml``; ``harness.declared`` has those of the metrics."""

LARGEST = 2.0**63  # of a whole number of 64 bits; no count is so large, but a damaged record's may be
TYPES = {"text": "string", "truth": "boolean", "": "Int64"}
"""Types of pandas, by unit, in which a missing value is ``<NA>``. All other units are Float64."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Its name, header and pandas' type are the same wherever it stands.

    ``meaning`` is its row in docs/DATAFRAMES.md; "": it shares the next row.
    ``source``: the attribute of a comparison, or of its parts (``record.parity.failed``), or a function.
    A part that is None has no value. Of several words, a text has all, and another unit their number.
    """

    name: str
    unit: str
    source: str | Callable[[Comparison], Scalar]
    meaning: str
    group: str = RESULT
    digits: int = 3  # significant digits, for units that do not fix the format

    @property
    def dtype(self) -> str:
        return TYPES.get(self.unit, "Float64")

    def value(self, comparison: Comparison) -> Scalar:
        """The value as its type; None if it is missing, or if the record has something else there."""
        value = self.source(comparison) if callable(self.source) else _part(comparison, self.source)
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, tuple):
            value = "; ".join(value) if self.dtype == "string" else len(value)
        if self.dtype == "string":
            return str(value) if value not in (None, "") else None
        if self.dtype == "boolean":
            return value if isinstance(value, bool) else None
        number = float(value) if isinstance(value, (int, float)) else math.nan
        if math.isnan(number):
            return None
        return number if self.unit else int(number) if abs(number) < LARGEST else None


def _part(comparison: object, path: str) -> Scalar:
    """``record.parity.failed`` of a comparison; None if one of the parts is None."""
    value: object = comparison
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value  # type: ignore[return-value]  # a test looks at every column


def _parts(comparison: Comparison) -> tuple[str, str | None]:
    """The compiler and the environment of a candidate like ``inductor@new``."""
    job, candidate = comparison.record.job, comparison.record.candidate
    if not job.environments:
        return candidate, None
    compiler, environment = split_candidate(job, candidate)
    return compiler, environment.name


def _failure(comparison: Comparison) -> str | None:
    failure = comparison.record.failure
    return None if failure is None else f"{failure.phase}: {failure.kind}: {failure.message}"


def _value(name: str) -> Callable[[Comparison], Scalar]:
    """The metric or derived number of this name."""
    return lambda comparison: comparison.value(name)


COMPUTED: Mapping[str, Callable[[Comparison], Scalar]] = MappingProxyType(
    {
        "compiler": lambda c: _parts(c)[0],
        "environment": lambda c: _parts(c)[1],
        "model": lambda c: case_name(c.record.job.case),
        "batch_size": lambda c: ran_batch(c.record),
        "changes": lambda c: " ".join(c.record.job.case.changes),
        "failure": _failure,
        "notes": lambda c: "; ".join(notes_of(c.record)),
        "torch": lambda c: c.record.environment.get("torch"),
    }
)
"""Columns that are no attribute."""


@cache
def own_columns() -> tuple[Column, ...]:
    """The columns of ``columns.toml``. One without a place and without a function is a derived number."""
    reasons = ", ".join(f"`{reason.value}`" for reason in Reason)
    return tuple(
        Column(
            name, unit, place or COMPUTED.get(name) or _value(name), meaning.format(reasons=reasons), group
        )
        for group, rows in read_toml(Path(__file__).with_suffix(".toml")).items()
        for name, (unit, place, meaning) in rows.items()
    )


OF_PYTORCH = MappingProxyType(
    {
        "dev": "device",
        "name": "name",
        "batch_size": "batch_size",
        "accuracy": "status",
        "speedup": "speedup_of_medians",
        "abs_latency": "candidate_ms",
        "compilation_latency": "compilation_latency_s",
        "compression_ratio": "memory_ratio",
        "eager_peak_mem": "baseline_peak_gb",
        "dynamo_peak_mem": "candidate_peak_gb",
        "calls_captured": "calls_captured",
        "unique_graphs": "unique_graphs",
        "graph_breaks": "graph_breaks",
        "unique_graph_breaks": "unique_graph_breaks",
        "autograd_captures": "autograd_captures",
        "autograd_compiles": "autograd_compiles",
        "cudagraph_skips": "cudagraph_skips",
    }
)
"""The columns of PyTorch's benchmark runner: its header -> our name."""


@cache
def columns() -> Mapping[str, Column]:
    """All columns, by name, in their order: ``own_columns``, then the metrics'."""
    metrics = (
        Column(name, metric.unit, _value(name), metric.meaning, metric.group, metric.digits)
        for metric in declared().metrics
        for name in metric.names
    )
    return MappingProxyType({column.name: column for column in (*own_columns(), *metrics)})


def frame(comparisons: Sequence[Comparison], shown: Iterable[Column]) -> pd.DataFrame:
    """One row for each comparison, in its order. A missing value is ``<NA>``."""
    import pandas as pd

    labels = suite_labels(comparison.record.job.case.suite for comparison in comparisons)
    table = pd.DataFrame(
        {c.name: pd.array([c.value(comparison) for comparison in comparisons], dtype=c.dtype) for c in shown}
    )
    return table.replace({"suite": labels}) if "suite" in table else table
