"""The tables of a run in several environments, as rows of text, for the console and report.md."""

from __future__ import annotations

from collections.abc import Iterator

from runner.analysis.comparison import AcrossEnvironments, EnvironmentAverage, Summary
from runner.analysis.digits import MISSING, estimate_text, ms_text, p_text
from runner.analysis.texts import verdict_text
from runner.labels import case_name, plain
from runner.reports.parts.averages import mean_text
from runner.reports.parts.grid import Table, TextColumn, optional, table_of
from runner.reports.parts.sections import conditions, conditions_of

RESULTS = {True: "same", False: "DIFFERENT", None: MISSING}
NOTE = (
    "Each row is compared with eager of {reference}, in the same rounds. Read the rows of eager first: "
    "if eager of an environment is slow, a compiler's speedup over this eager looks too large. Column "
    "results: whether eager of the environment computes the same results as eager of {reference}, from "
    "the same weights and inputs."
)


def environment_tables(summary: Summary) -> tuple[Table, ...]:
    """The averages, then a table for each suite, mode, device and dtype; () for an ordinary run."""
    if not summary.across:
        return ()
    several = any(row.total > 1 for row in summary.across_averages)
    return (*([_averages(summary)] if several else []), *_by_model(summary))


def environment_note(summary: Summary) -> str:
    """How to read the tables."""
    return NOTE.format(reference=", ".join(dict.fromkeys(row.reference for row in summary.across)))


def _averages(summary: Summary) -> Table:
    labels = summary.labels
    cells: tuple[TextColumn[EnvironmentAverage], ...] = (
        TextColumn("models", lambda row: conditions(labels[row.suite], row.mode, row.dtype, row.device)),
        TextColumn("environment", lambda row: row.environment),
        TextColumn("versions", lambda row: plain(row.versions)),
        TextColumn("compiler", lambda row: plain(row.compiler)),
        TextColumn("speedup", lambda row: mean_text(row.mean)),
        TextColumn("averaged", lambda row: f"{row.mean.models}/{row.total}", is_number=True),
    )
    reference = summary.across[0].reference
    title = f"Environments: geometric mean against eager of {reference} [95 % interval over models]"
    return table_of(title, summary.across_averages, cells, droppable=("versions", "averaged"))


def _by_model(summary: Summary) -> Iterator[Table]:
    labels = summary.labels
    sections: dict[str, list[AcrossEnvironments]] = {}
    for row in summary.across:
        sections.setdefault(conditions_of(row.record, labels), []).append(row)
    for name, rows in sections.items():
        title = f"Environments: {name}, against eager of {rows[0].reference}"
        differ = any(row.same_results is False for row in rows)  # this must stay visible
        droppable = DROPPABLE if differ else (*DROPPABLE, "results")
        yield table_of(title, rows, CELLS, droppable, group=lambda row: row.record.job.key)


CELLS: tuple[TextColumn[AcrossEnvironments], ...] = (
    TextColumn("model", lambda row: case_name(row.record.job.case), once=True),
    TextColumn("environment", lambda row: row.environment),
    TextColumn("compiler", lambda row: plain(row.compiler)),
    TextColumn("reference ms", lambda row: optional(row.baseline_ms, ms_text), is_number=True),
    TextColumn("ms", lambda row: optional(row.candidate_ms, ms_text), is_number=True),
    TextColumn("speedup", lambda row: estimate_text(row.estimate)),
    TextColumn("p", lambda row: optional(row.p_value, p_text), is_number=True),
    TextColumn("q", lambda row: optional(row.q_value, p_text), is_number=True),
    TextColumn("verdict", lambda row: verdict_text(row, counts=row.counts)),
    TextColumn("results", lambda row: RESULTS[row.same_results]),
    TextColumn("n", lambda row: f"{row.n:,}" if row.n else MISSING, is_number=True),
)
DROPPABLE = ("n", "p", "reference ms", "q")
