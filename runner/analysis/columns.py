"""The columns of a result: each number and word of a ``Comparison``, declared once.

Data frames, CSV files, summary.json, the dashboard's JSON and report.html walk ``columns()``, in its order. A
metric's file declares its own numbers (``harness.declared``); they follow the columns of this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

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
"""The groups of this file's columns; ``harness.declared`` has those of the metrics."""

TYPES = {"text": "string", "truth": "boolean", "": "Int64"}
"""Types of pandas, by unit, in which a missing value is ``<NA>``. All other units are Float64."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Its name, header and pandas' type are the same wherever it stands.

    ``meaning`` is its row in docs/DATAFRAMES.md; "": it shares the next row.
    ``source``: the attribute of a comparison, or of its parts (``record.parity.failed``), or a function.
    A part that is None has no value.
    """

    name: str
    unit: str
    source: str | Callable[[Comparison], Scalar]
    meaning: str
    group: str = RESULT

    @property
    def dtype(self) -> str:
        return TYPES.get(self.unit, "Float64")

    def value(self, comparison: Comparison) -> Scalar:
        """The value as its type; None if it is missing, or if the record has something else there."""
        value = self.source(comparison) if callable(self.source) else _part(comparison, self.source)
        if isinstance(value, Enum):
            value = value.value
        if self.dtype == "string":
            return str(value) if value not in (None, "") else None
        if self.dtype == "boolean":
            return value if isinstance(value, bool) else None
        number = float(value) if isinstance(value, (int, float)) else math.nan
        if math.isnan(number):
            return None
        return number if self.unit else int(number) if math.isfinite(number) else None


def _part(comparison: object, path: str) -> Scalar:
    """``record.parity.failed`` of a comparison; None if one of the parts is None."""
    value: object = comparison
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value  # type: ignore[return-value]  # a test looks at every column


def _in_environment(place: int) -> Callable[[Comparison], str | None]:
    """The compiler (0) or the environment (1) of a candidate like ``inductor@new``."""

    def part(comparison: Comparison) -> str | None:
        job, candidate = comparison.record.job, comparison.record.candidate
        if not job.environments:
            return (candidate, None)[place]
        compiler, environment = split_candidate(job, candidate)
        return (compiler, environment.name)[place]

    return part


def _failure(comparison: Comparison) -> str | None:
    failure = comparison.record.failure
    return None if failure is None else f"{failure.phase}: {failure.kind}: {failure.message}"


def _value(name: str) -> Callable[[Comparison], Scalar]:
    """The metric or derived number of this name."""
    return lambda comparison: comparison.value(name)


def _count(comparison: Comparison, names: str) -> int | None:
    parity = comparison.record.parity
    return None if parity is None else len(getattr(parity, names))


def _inputs(comparison: Comparison) -> str | None:
    model = comparison.record.model
    return None if model is None else "; ".join(model.input_shapes)


COLUMNS = (
    Column("job", "text", "record.job.key", "one model under one set of conditions; joins the tables", KEY),
    Column("name", "text", "record.job.case.name", "the model's name in its suite", KEY),
    Column("compiler", "text", _in_environment(0), "the candidate; `eager` is the A/A control", KEY),
    Column("environment", "text", _in_environment(1), "of a run with `--envs`, else missing", KEY),
    Column("suite", "text", "record.job.case.suite", "suite, or file of the user's own", KEY),
    Column(
        "model", "text", lambda c: case_name(c.record.job.case), "the model, with its scale and changes", KEY
    ),
    Column("mode", "text", "record.job.case.mode", "`training`, `inference` or `generate`", KEY),
    Column("dtype", "text", "record.job.dtype", "precision, a word of `--dtypes`", KEY),
    Column("device", "text", "record.job.device", "as `--devices` names it", KEY),
    Column("scale", "text", "record.job.case.scale", "`full`, `small` or `tiny`", KEY),
    Column("batch_size", "", lambda c: ran_batch(c.record), "the batch that ran", KEY),
    Column("published_batch_size", "", "record.job.case.published_batch_size", "batch of its source", KEY),
    Column("status", "text", "record.status", "how the candidate ended ([FORMAT.md](FORMAT.md#status))"),
    Column("passed", "truth", "record.status.passed", "whether it may enter an average"),
    Column("verdict", "text", "verdict", "`faster`, `slower`, `same`, `inconclusive` or `unsteady`"),
    Column(
        "open_because",
        "text",
        "open.reason",
        f"of an open verdict: {', '.join(f'`{r.value}`' for r in Reason)}",
    ),
    Column("closes_with", "text", "open.closes", "what would probably close it"),
    Column("unsteady", "text", "estimate.unsteady", "why a verdict is withheld"),
    Column("n", "", lambda c: c.n or None, "timed rounds"),
    Column("processes", "", "estimate.processes", "processes that gave the rounds"),
    Column("baseline_ms", "ms", "baseline_ms", ""),
    Column("candidate_ms", "ms", "candidate_ms", "median step of eager, and of the candidate"),
    Column("speedup", "ratio", "speedup", "eager's time / the candidate's, from paired log ratios"),
    Column("ci_low", "ratio", "ci_low", ""),
    Column("ci_high", "ratio", "ci_high", "ends of its 95 % interval"),
    Column("low_90", "ratio", "estimate.low_90", ""),
    Column("high_90", "ratio", "estimate.high_90", "ends of its 90 % interval, for *same*"),
    Column("over_plain", "ratio", "over_plain.factor", "a candidate with settings over the plain one"),
    Column("over_plain_low", "ratio", "over_plain.low", ""),
    Column("over_plain_high", "ratio", "over_plain.high", "ends of its 95 % interval"),
    Column("p_value", "p", "p_value", "of a speedup of 1"),
    Column("q_value", "p", "q_value", "Benjamini-Hochberg over the run"),
    Column("between_sd", "share", "estimate.between_sd", "sd of the log speedup between processes, measured"),
    Column("between_df", "df", "estimate.between_df", "degrees of freedom of the interval over processes"),
    Column("assumed_sd", "share", "estimate.assumed_sd", "the same, assumed in the interval of one process"),
    Column("calibrated", "text", "record.calibrated", "date of the `--calibrate` that it is from, if any"),
    Column(
        "speedup_of_medians", "ratio", "estimate.speedup_of_medians", "eager's median time / the candidate's"
    ),
    Column("break_even_steps", "steps", "break_even.steps", "until the compilation has paid; `inf`: never"),
    Column("break_even_low", "steps", "break_even.low", ""),
    Column("break_even_high", "steps", "break_even.high", "ends of its interval"),
    Column("pays", "text", "break_even.pays", "`yes`, `no`; `open`: the speedup's interval contains 1"),
    Column("baseline_peak_gb", "GB", "baseline_peak_gb", ""),
    Column("candidate_peak_gb", "GB", "candidate_peak_gb", "peak memory (1e9 bytes)"),
    Column("parameters", "", "record.model.parameters", "of the model as built", SIZE),
    Column("input_shapes", "text", _inputs, "of the model as built", SIZE),
    Column(
        *("changes", "text", lambda c: " ".join(c.record.job.case.changes)),
        *("of the model's configuration", SIZE),
    ),
    Column("parity_rule", "text", "record.parity.rule", "the rule of the check", PARITY),
    Column("reference", "text", "record.parity.reference", "`fp64`, or `eager`", PARITY),
    Column("tolerance", "share", "record.parity.tolerance", "of the rule", PARITY),
    Column("tensors", "", "record.parity.tensors", "", PARITY),
    Column(
        "tensors_failed", "", "record.parity.failed", "compared tensors, and those beyond their limit", PARITY
    ),
    Column("tensors_sensitive", "", lambda c: _count(c, "sensitive_tensors"), "", PARITY),
    Column(
        *("tensors_not_judged", "", lambda c: _count(c, "noise_tensors")),
        *("tensors beyond a limit as noisy eager is, and those that cannot be judged", PARITY),
    ),
    Column("worst_tensor", "text", "record.parity.worst.name", "the tensor nearest its limit", PARITY),
    Column("worst_scale", "error", "record.parity.worst.scale", "its RMS size", PARITY),
    Column("worst_eager_error", "error", "record.parity.worst.eager_rmse", "", PARITY),
    Column("worst_noisy_error", "error", "record.parity.worst.noisy_rmse", "", PARITY),
    Column(
        "worst_error",
        "error",
        "record.parity.worst.candidate_rmse",
        "RMS error of eager, noisy eager, the candidate",
        PARITY,
    ),
    Column("worst_error_allowed", "error", "record.parity.worst.allowed", "the limit of that error", PARITY),
    Column("worst_max", "error", "record.parity.worst.candidate_max", "", PARITY),
    Column(
        "worst_max_allowed",
        "error",
        "record.parity.worst.allowed_max",
        "the candidate's largest error, its limit",
        PARITY,
    ),
    Column("worst_failure", "text", "record.parity.worst.failure", "why the tensor failed", PARITY),
    Column("found_by", "text", "record.parity.found_by", "the check that found the failure", PARITY),
    Column("eager_bit_equal", "truth", "record.parity.eager_bit_equal", "two runs of eager agree", PARITY),
    Column("eager_spread", "share", "record.parity.eager_spread", "eager's own difference", PARITY),
    Column("resolution_median", "share", "record.parity.resolution_median", "", PARITY),
    Column(
        *("resolution_largest", "share", "record.parity.resolution_largest"),
        *("the largest error of a tensor that would pass: median and largest", PARITY),
    ),
    Column("resolution_outputs", "share", "record.parity.resolution_outputs", "", PARITY),
    Column("resolution_gradients", "share", "record.parity.resolution_gradients", "of these kinds", PARITY),
    Column("judged_finely", "share", "record.parity.fine", "of all values: judged to 1 % or better", PARITY),
    Column("baseline_cv", "share", _value("baseline_cv"), "", STEADINESS),
    Column("candidate_cv", "share", _value("candidate_cv"), "sd / mean of the samples", STEADINESS),
    Column("lag_1", "correlation", _value("lag_1"), "of successive log ratios, near 0", STEADINESS),
    Column("baseline_minor_faults", "faults", _value("baseline_minor_faults"), "", STEADINESS),
    Column(
        "candidate_minor_faults",
        "faults",
        _value("candidate_minor_faults"),
        "page faults of a step",
        STEADINESS,
    ),
    Column("steps_per_sample", "", "record.samples.iterations_per_sample", "steps of a sample", STEADINESS),
    Column("allocator", "text", "record.job.extras.allocator", "the allocator of the host", STEADINESS),
    *(
        Column(f"{side}_{part}_ms", "ms", f"generation.{part}.{side}_ms", meaning, GENERATION)
        for part in ("prefill", "decode")
        for side, meaning in (("baseline", ""), ("candidate", f"median {part}"))
    ),
    *(
        Column(f"{part}_speedup", "ratio", f"generation.{part}.speedup", f"of {part}", GENERATION)
        for part in ("prefill", "decode")
    ),
    *(
        Column(f"{side}_tokens_per_s", "tokens/s", f"generation.{side}_tokens_per_s", meaning, GENERATION)
        for side, meaning in (("baseline", ""), ("candidate", "of decode"))
    ),
    Column("failure", "text", _failure, "phase, kind and message of the failure", RECORD),
    Column("notes", "text", lambda c: "; ".join(notes_of(c.record)), "remarks for the reader", RECORD),
    Column("reproduce", "text", "record.reproduce", "the command that measures it again", RECORD),
    Column("torch", "text", lambda c: c.record.environment.get("torch"), "version of torch", RECORD),
    Column("started", "text", "record.started", "UTC, ISO 8601", RECORD),
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
    """All columns, by name, in their order: those of this file, then the metrics'."""
    metrics = (
        Column(name, metric.unit, _value(name), metric.meaning, metric.group)
        for metric in declared().metrics
        for name in metric.names
    )
    return MappingProxyType({column.name: column for column in (*COLUMNS, *metrics)})


def frame(comparisons: Sequence[Comparison], shown: Iterable[Column]) -> pd.DataFrame:
    """One row for each comparison, in its order. A missing value is ``<NA>``."""
    import pandas as pd

    labels = suite_labels(comparison.record.job.case.suite for comparison in comparisons)
    table = pd.DataFrame(
        {c.name: pd.array([c.value(one) for one in comparisons], dtype=c.dtype) for c in shown}
    )
    return table.replace({"suite": labels}) if "suite" in table else table
