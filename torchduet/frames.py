"""A finished run as tidy pandas DataFrames: ``torchduet.load("logs/RUN").comparisons``. pandas is optional.

``COMPARISONS``, ``SAMPLES`` and ``FIRST_CALLS`` declare the columns; ``docs/DATAFRAMES.md`` lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.schema import Record
from runner.analysis.comparison import Comparison
from runner.analysis.derive import summarize
from runner.errors import UsageError
from runner.labels import case_name, ran_batch, suite_labels
from runner.plan.environments.plan import split_candidate
from runner.store.run_folder import RECORDS, read_run

if TYPE_CHECKING:
    import pandas as pd

TEXT, NUMBER, WHOLE, TRUTH = "string", "Float64", "Int64", "boolean"
"""Types of pandas in which a missing value is ``<NA>``, so that a column keeps its type."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``meaning`` begins with its unit, if it has one."""

    name: str
    dtype: str
    meaning: str


KEYS = (
    Column("job", TEXT, "name of the job: one model under one set of conditions; joins the three tables"),
    Column("compiler", TEXT, "the candidate; `eager` is the A/A control"),
    Column("environment", TEXT, "its environment in a run with `--envs`, else missing"),
)
COMPARISONS = (
    *KEYS,
    Column("suite", TEXT, "suite, or file of the user's own"),
    Column("model", TEXT, "the model, with its scale and changes"),
    Column("mode", TEXT, "`training`, `inference` or `generate`"),
    Column("dtype", TEXT, "precision, a word of `--dtypes`"),
    Column("device", TEXT, "as `--devices` names it"),
    Column("scale", TEXT, "`full`, `small` or `tiny`"),
    Column("batch_size", WHOLE, "the batch that ran"),
    Column("published_batch_size", WHOLE, "the batch of the model's source"),
    Column("status", TEXT, "how the candidate ended ([FORMAT.md](FORMAT.md#status))"),
    Column("passed", TRUTH, "whether it may enter an average"),
    Column("verdict", TEXT, "`faster`, `slower`, `same`, `inconclusive` or `unsteady`"),
    Column("n", WHOLE, "timed rounds"),
    Column("processes", WHOLE, "processes that gave the rounds"),
    Column("baseline_ms", NUMBER, "ms: median step of eager"),
    Column("candidate_ms", NUMBER, "ms: median step of the candidate"),
    Column("speedup", NUMBER, "eager's time / the candidate's: pseudo-median of the paired log ratios"),
    Column("ci_low", NUMBER, "lower end of its 95 % interval"),
    Column("ci_high", NUMBER, "upper end of its 95 % interval"),
    Column("p_value", NUMBER, "of a speedup of 1"),
    Column("q_value", NUMBER, "Benjamini-Hochberg over the run"),
    Column("speedup_of_medians", NUMBER, "eager's median time / the candidate's"),
    Column("compilation_latency_s", NUMBER, "s: the compiler's call and first calls, less eager steps"),
    Column("break_even_steps", NUMBER, "steps until the compilation has paid; `inf` if it never does"),
    Column("baseline_peak_gb", NUMBER, "GB (1e9 bytes): eager's peak memory"),
    Column("candidate_peak_gb", NUMBER, "GB (1e9 bytes): the candidate's peak memory"),
    Column("memory_ratio", NUMBER, "eager's peak / the candidate's"),
    Column("graph_breaks", WHOLE, "places where Dynamo ended a graph"),
    Column("calls_captured", WHOLE, "operations that Dynamo captured"),
    Column("worst_error", NUMBER, "of parity: error of the worst tensor, in its own unit"),
    Column("worst_error_allowed", NUMBER, "the limit of that error"),
    Column("failure", TEXT, "kind and message of the failure"),
    Column("torch", TEXT, "version of torch that measured it"),
    Column("started", TEXT, "UTC, ISO 8601"),
)
OF_A_RESULT = (
    *("model", "mode", "dtype", "device", "batch_size", "compiler", "status", "verdict"),
    *("n", "baseline_ms", "candidate_ms", "speedup", "ci_low", "ci_high", "p_value", "q_value"),
    *("speedup_of_medians", "compilation_latency_s", "baseline_peak_gb", "candidate_peak_gb"),
    *("memory_ratio", "break_even_steps", "worst_error", "worst_error_allowed", "failure"),
)
SAMPLES = (
    *KEYS,
    Column("round", WHOLE, "number of the round, from 0; both variants of a round are a pair"),
    Column("process", WHOLE, "number of the process, from 0"),
    Column("variant", TEXT, "`baseline` (eager) or `candidate`"),
    Column("position", WHOLE, "its place in the random order of its round, from 0"),
    Column("step_s", NUMBER, "s: one step, the mean over the steps of the sample"),
    Column("minor_faults", NUMBER, "page faults of one step"),
)
FIRST_CALLS = (
    *KEYS,
    Column("call", WHOLE, "number of the candidate's call before timing, from 0; the first call compiles"),
    Column("call_s", NUMBER, "s: the time of this call"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """The tables of one run. Each has a row for what its name says; ``job`` and ``compiler`` join them."""

    comparisons: pd.DataFrame
    samples: pd.DataFrame
    first_calls: pd.DataFrame

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{name}: {len(getattr(self, name))} rows" for name in ("comparisons", "samples", "first_calls")
        )
        return f"<Frames {sizes}>"


def load(run: str | Path) -> Frames:
    """The tables of a run: of its folder, or of its ``records.jsonl``.

    Raises ``UsageError`` if there is no run, and ``ImportError`` if pandas is not installed.
    """
    path = Path(run)
    file = path / RECORDS if path.is_dir() else path
    try:
        records = read_run(file).records
    except OSError as error:
        raise UsageError(
            f"load: {file} cannot be read ({error.strerror}); give the folder of a run, or its {RECORDS}"
        ) from None
    return frames_of(records)


def frames_of(records: Sequence[Record]) -> Frames:
    comparisons = summarize(records).comparisons
    labels = suite_labels(record.job.case.suite for record in records)
    return Frames(
        comparisons=_table(COMPARISONS, (_comparison(one, labels) for one in comparisons)),
        samples=_table(SAMPLES, (row for one in comparisons for row in _samples(one.record))),
        first_calls=_table(FIRST_CALLS, (row for one in comparisons for row in _first_calls(one.record))),
    )


def frame_of(comparisons: Sequence[Comparison]) -> pd.DataFrame:
    """The columns ``OF_A_RESULT`` of the comparisons of ``torchduet.compare()``, with pandas' usual types."""
    pd = _pandas("frame()")
    labels = suite_labels(one.record.job.case.suite for one in comparisons)
    rows = [_comparison(one, labels) for one in comparisons]
    return pd.DataFrame([{name: row[name] for name in OF_A_RESULT} for row in rows])


def _pandas(caller: str) -> Any:
    try:
        import pandas as pd
    except ImportError:
        raise ImportError(f"{caller} needs pandas, which is not installed; pip install pandas") from None
    return pd


def _table(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    pd = _pandas("load()")
    values = list(rows)
    return pd.DataFrame(
        {one.name: pd.array([row[one.name] for row in values], dtype=one.dtype) for one in columns}
    )


def _keys(record: Record) -> dict[str, Any]:
    compiler, environment = record.candidate, None
    if record.job.environments:
        compiler, found = split_candidate(record.job, record.candidate)
        environment = found.name
    return {"job": record.job.key, "compiler": compiler, "environment": environment}


def _comparison(one: Comparison, labels: Mapping[str, str]) -> dict[str, Any]:
    record, job, case = one.record, one.record.job, one.record.job.case
    worst = record.parity.worst if record.parity is not None else None
    own = {
        **_keys(record),
        "suite": labels[case.suite],
        "model": case_name(case),
        "mode": case.mode.value,
        "dtype": job.dtype,
        "device": job.device,
        "scale": case.scale,
        "batch_size": ran_batch(record),
        "published_batch_size": case.published_batch_size,
        "status": record.status.value,
        "passed": record.status.passed,
        "verdict": one.verdict.value if one.verdict is not None else None,
        "graph_breaks": _count(record, "graph_breaks"),
        "calls_captured": _count(record, "calls_captured"),
        "worst_error": worst.candidate_rmse if worst is not None else None,
        "worst_error_allowed": worst.allowed if worst is not None else None,
        "failure": None if record.failure is None else f"{record.failure.kind}: {record.failure.message}",
        "torch": record.environment.get("torch"),
        "started": record.started or None,
    }
    return {
        column.name: own[column.name] if column.name in own else getattr(one, column.name)
        for column in COMPARISONS
    }


def _count(record: Record, name: str) -> int | None:
    value = record.metrics.get(name)
    return int(value) if isinstance(value, (int, float)) else None


def _samples(record: Record) -> Iterable[dict[str, Any]]:
    samples = record.samples
    if samples is None:
        return
    for index, process in enumerate(samples.process_of_round):
        for variant in ("baseline", "candidate"):
            yield {
                **_keys(record),
                "round": index,
                "process": process,
                "variant": variant,
                "position": getattr(samples, f"{variant}_position")[index],
                "step_s": getattr(samples, f"{variant}_s")[index],
                "minor_faults": getattr(samples, f"{variant}_minor_faults")[index],
            }


def _first_calls(record: Record) -> Iterable[dict[str, Any]]:
    for number, seconds in enumerate(record.first_calls_s):
        yield {**_keys(record), "call": number, "call_s": seconds}
