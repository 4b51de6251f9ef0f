"""The tables of a run in several environments, as rows of text, for the console and report.md."""

from __future__ import annotations

from collections.abc import Iterator

from runner.analysis.digits import MISSING, estimate_text, ms_text, p_text
from runner.analysis.estimate import PairedEstimate
from runner.analysis.results import REFERENCE, Average, Ratio, Summary, same_results
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
    if not summary.of(REFERENCE):
        return ()
    several = any(row.total > 1 for row in summary.averages_of(REFERENCE))
    return (*([_averages(summary)] if several else []), *_by_model(summary))


def environment_note(summary: Summary) -> str:
    """How to read the tables."""
    return NOTE.format(reference=", ".join(dict.fromkeys(row.second.env for row in summary.of(REFERENCE))))


def _averages(summary: Summary) -> Table:
    labels = summary.labels
    cells: tuple[TextColumn[Average], ...] = (
        TextColumn("models", lambda row: conditions(labels[row.place.suite], *row.place[1:])),
        TextColumn("environment", lambda row: row.first.env),
        TextColumn("versions", versions),
        TextColumn("compiler", lambda row: plain(row.first.name)),
        TextColumn("speedup", lambda row: mean_text(row.mean)),
        TextColumn("averaged", lambda row: f"{row.mean.models}/{row.total}", is_number=True),
    )
    reference = summary.of(REFERENCE)[0].second.env
    title = f"Environments: geometric mean against eager of {reference} [95 % interval over models]"
    return table_of(title, summary.averages_of(REFERENCE), cells, droppable=("versions", "averaged"))


def _by_model(summary: Summary) -> Iterator[Table]:
    labels = summary.labels
    sections: dict[str, list[Ratio]] = {}
    for row in summary.of(REFERENCE):
        sections.setdefault(conditions_of(row.record, labels), []).append(row)
    for name, rows in sections.items():
        title = f"Environments: {name}, against eager of {rows[0].second.env}"
        differ = any(same_results(row.record) is False for row in rows)  # this must stay visible
        droppable = DROPPABLE if differ else (*DROPPABLE, "results")
        yield table_of(title, rows, CELLS, droppable, group=lambda row: row.record.job.key)


def versions(average: Average) -> str:
    """Of torch in the environment."""
    known = average.record.job.environments
    return plain(f"torch {next(env.torch for env in known if env.name == average.first.env)}")


def _ms(row: Ratio, side: str) -> str:
    known = row.estimate
    return ms_text(getattr(known, f"{side}_ms")) if isinstance(known, PairedEstimate) else MISSING


CELLS: tuple[TextColumn[Ratio], ...] = (
    TextColumn("model", lambda row: case_name(row.record.job.case), once=True),
    TextColumn("environment", lambda row: row.first.env),
    TextColumn("compiler", lambda row: plain(row.first.name)),
    TextColumn("reference ms", lambda row: _ms(row, "baseline"), is_number=True),
    TextColumn("ms", lambda row: _ms(row, "candidate"), is_number=True),
    TextColumn("speedup", lambda row: estimate_text(row.estimate)),
    TextColumn("p", lambda row: optional(row.estimate, lambda e: p_text(e.p_value)), is_number=True),
    TextColumn("q", lambda row: optional(row.q_value, p_text), is_number=True),
    TextColumn("verdict", lambda row: verdict_text(row, counts=row.counts)),
    TextColumn("results", lambda row: RESULTS[same_results(row.record)]),
    TextColumn("n", lambda row: optional(row.estimate, lambda e: f"{e.n:,}"), is_number=True),
)
DROPPABLE = ("n", "p", "reference ms", "q")
