"""Columns of tables, and those of a result: each number and word of a ``Result``, in ``columns.toml``.

Data frames, CSV files, summary.json, the dashboard's JSON and all tables walk ``columns()``, in its order. A
metric's file declares its own numbers (``harness.declared``); they follow the columns of ``columns.toml``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum
from functools import cache, partial
from operator import methodcaller
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from harness import declared as declared_column
from harness.declared import EAGER, Metric, finite
from harness.loading.toml_file import read_toml
from harness.metrics import declared
from harness.schema import Scalar
from runner.analysis import texts
from runner.analysis.digits import MISSING, break_even_text, estimate_text, number_text
from runner.analysis.results import OPERATION, Result
from runner.analysis.verdicts import Reason
from runner.names import case_name, notes_of, ran_batch, suite_labels
from runner.plan.environments.spec import split_candidate

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
JSON = "json"  # of a value with parts
KEY, RESULT, SIZE, PARITY, NUMERICS, STEADINESS, GENERATION, RECORD = (
    *("key", "result", "size", "parity", "numerics", "steadiness", "generation", "record"),
)
"""The groups of ``columns.toml``; ``harness.declared`` has those of the metrics."""

LARGEST = 2.0**63  # of a whole number of 64 bits; no count is so large, but a damaged record's may be
TYPES = {"text": "string", "truth": "boolean", "": "Int64"}
"""Types of pandas, by unit, in which a missing value is ``<NA>``. All other units are Float64."""


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column of rows of any type. Its name, header and pandas' type are the same wherever it stands.

    ``meaning`` is its row in docs/FORMAT.md; "": it shares the next row.
    ``source``: the attribute of a row, or of its parts (``record.parity.failed``), or a function.
    A part that is None has no value. Of several words, a text has all, and another unit their number.
    Tables of text have the columns with a ``header``, which may have two lines.
    """

    name: str  # "": not in JSON, CSV files and data frames
    unit: str
    source: str | Callable[[T], Any] = ""
    header: str = ""
    text: Callable[[T], str] | None = None  # instead of the digits of its unit
    drop: int = 0  # 0: every table has it; else the larger, the sooner a narrow table omits it
    once: bool = False  # the first row of a group has the text, the next rows only if it differs
    _: KW_ONLY
    brief: Callable[[T], str] | None = None  # the text where a table has no column left to omit
    meaning: str = ""
    group: str = RESULT
    digits: int = 3  # significant digits, for units that do not fix the format

    @property
    def dtype(self) -> str:
        return TYPES.get(self.unit, "Float64")

    @property
    def is_number(self) -> bool:
        """Whether its cells stand at the right. A factor with its interval begins with the factor."""
        return self.dtype in ("Int64", "Float64") and (self.unit not in ("ratio", JSON) or self.text is None)

    def value(self, row: T) -> Any:
        """The value as its type; None if it is missing, or if the record has something else there."""
        value = self.source(row) if callable(self.source) else _part(row, self.source)
        if value is None or self.unit == JSON:  # most columns of most rows are empty
            return value
        kind = self.dtype
        if kind == "string":
            if isinstance(value, tuple):
                value = "; ".join(value)
            return str(value.value if isinstance(value, Enum) else value) or None
        if kind == "boolean":
            return value if isinstance(value, bool) else None
        value = len(value) if isinstance(value, tuple) else value
        number = float(value) if isinstance(value, (int, float)) else math.nan
        if math.isnan(number):
            return None
        return number if self.unit else int(number) if abs(number) < LARGEST else None

    def cell(self, row: T) -> str:
        """The value as a table of text has it."""
        if self.text is not None:
            return self.text(row)
        value = self.value(row)
        if value is None or isinstance(value, bool):
            return MISSING if value is None else "yes" if value else "no"
        return f"{value:,}" if isinstance(value, int) else number_text(value, self.unit, self.digits)


def values(unit: str, *names: str, of: str = "") -> Iterator[Column[Any]]:
    """Columns for programs only: each is the attribute of its name, of this part of a row (``estimate.``)."""
    return (Column(name, unit, f"{of}{name}") for name in names)


def text_column(header: str, text: Callable[[T], str], drop: int = 0, once: bool = False) -> Column[T]:
    """A column of tables of text only."""
    return Column("", "text", "", header, text, drop, once)


def _part(row: object, path: str) -> Any:
    """``record.parity.failed`` of a comparison; None if one of the parts is None."""
    value: object = row
    for name in _names(path):
        if value is None:
            break
        value = value.get(name) if isinstance(value, dict) else getattr(value, name)
    return value


@cache
def _names(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def _parts(comparison: Result) -> tuple[str, str | None]:
    """The compiler and the environment of a candidate like ``inductor@new``."""
    job, candidate = comparison.record.job, comparison.record.candidate
    if not job.environments:
        return candidate, None
    compiler, environment = split_candidate(job, candidate)
    return compiler, environment.name


def _tokens_per_s(side: str, comparison: Result) -> float | None:
    """Of decode: the new tokens of all sequences, without the first of each, / its time."""
    decode, record = comparison.own.get("decode"), comparison.record
    if decode is None or record.job.case.new_tokens is None:
        return None
    tokens = (ran_batch(record) or 1) * (record.job.case.new_tokens - 1)
    return tokens / float(getattr(decode.estimate, f"{side}_median_s"))


COMPUTED: Mapping[str, Callable[[Result], Scalar]] = MappingProxyType(
    {
        "compiler": lambda c: _parts(c)[0],
        "environment": lambda c: _parts(c)[1],
        "model": lambda c: case_name(c.record.job.case),
        "batch_size": lambda c: ran_batch(c.record),
        "changes": lambda c: " ".join(c.record.job.case.changes),
        "failure": lambda c: f"{f.phase}: {f.kind}: {f.message}" if (f := c.record.failure) else None,
        "notes": lambda c: "; ".join(notes_of(c.record)),
        "baseline_tokens_per_s": partial(_tokens_per_s, "baseline"),
        "candidate_tokens_per_s": partial(_tokens_per_s, "candidate"),
        "between_df": lambda c: c.estimate.df if c.estimate and c.estimate.processes > 1 else None,
        "torch": lambda c: c.record.environment.get("torch"),
    }
)
"""Columns that are no attribute."""


TEXTS: Mapping[str, Callable[[Result], str]] = MappingProxyType(
    {
        "parameters": lambda c: texts.millions(c.record.model),
        "input_shapes": lambda c: texts.input_text(c.record.model),
        "batch_size": texts.batch_cell,
        "compiler": lambda c: texts.compiler_name(c.compiler),
        "speedup": lambda c: estimate_text(c.estimate),
        "prefill_speedup": lambda c: estimate_text(c.estimate_of("prefill")),
        "decode_speedup": lambda c: estimate_text(c.estimate_of("decode")),
        "verdict": lambda c: texts.verdict_text(c, counts=c.passed),
        "status": lambda c: texts.parity_word(c.record),
        "resolution_outputs": texts.parity_detail,
        "break_even_steps": lambda c: MISSING if c.break_even is None else break_even_text(c.break_even),
        "n": lambda c: MISSING if c.estimate is None else f"{c.n:,}",
        "between_sd": texts.processes_cell,
        "worst_error": texts.worst_cell,
    }
)
"""The texts of columns that have more than the digits of their unit."""


@cache
def own_columns() -> tuple[Column[Result], ...]:
    """The columns of ``columns.toml``. One without a place and without a function is a derived number."""
    reasons = ", ".join(f"`{reason.value}`" for reason in Reason if reason is not Reason.RUNS)
    return tuple(
        Column(
            *(name, unit, place or COMPUTED.get(name) or methodcaller("value", name)),
            brief=texts.verdict_or_status if name == "verdict" else None,
            meaning=meaning.format(reasons=reasons),
            **{"group": group, "text": TEXTS.get(name), **(more[0] if more else {})},
        )
        for group, rows in read_toml(Path(__file__).with_suffix(".toml")).items()
        for name, (unit, place, meaning, *more) in rows.items()
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
        **{name: name for name in ("calls_captured", "unique_graphs", "graph_breaks", "unique_graph_breaks")},
        **{name: name for name in ("autograd_captures", "autograd_compiles", "cudagraph_skips")},
    }
)
"""The columns of PyTorch's benchmark runner: its header -> our name."""


@cache
def columns() -> Mapping[str, Column[Result]]:
    """All columns, by name, in their order: ``own_columns``, then the metrics'."""
    metrics = (_of_metric(metric, name) for metric in declared().metrics for name in metric.names)
    return MappingProxyType({column.name: column for column in (*own_columns(), *metrics)})


def _of_metric(metric: Metric, name: str) -> Column[Result]:
    about = (name, metric.unit, methodcaller("value", name))
    column = Column(*about, meaning=metric.meaning, group=metric.group, digits=metric.digits)
    shown = next((shown for shown in metric.columns if shown.side + metric.name == name), None)
    if shown is None:
        return column
    text = partial(_metric_text, column, shown)
    return replace(column, header=shown.header, text=text, once=shown.side == EAGER, drop=shown.drop)


def _metric_text(column: Column[Result], shown: declared_column.Column, comparison: Result) -> str:
    if shown.operations_only and OPERATION not in comparison.record.job.case.tags:
        return MISSING
    value = comparison.value(column.name)
    if shown.or_else and not value:
        value = comparison.value(shown.or_else)
    text = value if isinstance(value, str) else finite(value)
    star = "*" if shown.starred_by and comparison.value(shown.starred_by) else ""
    return MISSING if text is None else number_text(text, column.unit, column.digits) + star


def frame(comparisons: Sequence[Result], shown: Iterable[Column[Result]]) -> pd.DataFrame:
    """One row for each comparison, in its order. A missing value is ``<NA>``."""
    import pandas as pd

    labels = suite_labels(comparison.record.job.case.suite for comparison in comparisons)
    table = pd.DataFrame(
        {c.name: pd.array([c.value(comparison) for comparison in comparisons], dtype=c.dtype) for c in shown}
    )
    return table.replace({"suite": labels}) if "suite" in table else table
