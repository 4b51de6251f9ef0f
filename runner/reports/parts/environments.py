"""The tables of a run in several environments, as rows of text, for the console and report.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

from runner.analysis.comparison import AcrossEnvironments, Summary
from runner.analysis.digits import MISSING, ms_text, p_text, speedup_text
from runner.labels import case_name, plain, suite_labels
from runner.reports.parts.grid import Table

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
    labels = suite_labels(row.suite for row in summary.across_averages)
    rows = []
    for row in summary.across_averages:
        mean = MISSING
        if row.averaged > 1:
            mean = speedup_text(row.geomean_speedup, row.geomean_low, row.geomean_high)
        where = f"{labels[row.suite]}, {row.mode}, {row.dtype}, {row.device}"
        count = f"{row.averaged}/{row.total}"
        rows.append((where, row.environment, plain(row.versions), plain(row.compiler), mean, count))
    reference = summary.across[0].reference
    return Table(
        title=f"Environments: geometric mean against eager of {reference} [95 % interval over models]",
        header=("models", "environment", "versions", "compiler", "speedup", "averaged"),
        numbers=(False, False, False, False, False, True),
        rows=tuple(rows),
        droppable=(2, 5),
    )


Text = Callable[[AcrossEnvironments], str]


def _by_model(summary: Summary) -> Iterator[Table]:
    labels = suite_labels(row.record.job.case.suite for row in summary.across)

    def section(row: AcrossEnvironments) -> str:
        job, case = row.record.job, row.record.job.case
        return f"{labels[case.suite]}, {case.mode.value}, {job.dtype}, {job.device}"

    sections: dict[str, list[AcrossEnvironments]] = {}
    for row in summary.across:
        sections.setdefault(section(row), []).append(row)
    for title, members in sections.items():
        rows = []
        for _, group in groupby(members, key=lambda row: row.record.job.key):
            for place, row in enumerate(group):
                name = case_name(row.record.job.case) if place == 0 else ""
                rows.append((name, *(text(row) for _, _, text in COLUMNS)))
        yield Table(
            title=f"Environments: {title}, against eager of {members[0].reference}",
            header=("model", *(header for header, _, _ in COLUMNS)),
            numbers=(False, *(number for _, number, _ in COLUMNS)),
            rows=tuple(rows),
            # different results must stay visible
            droppable=(10, 6, 3, 7) if any(o.same_results is False for o in members) else (10, 6, 3, 7, 9),
        )


def _number(value: float | None, text: Callable[[float], str]) -> str:
    return MISSING if value is None else text(value)


def _speedup(row: AcrossEnvironments) -> str:
    return speedup_text(row.speedup, row.ci_low, row.ci_high)


def _verdict(row: AcrossEnvironments) -> str:
    """The verdict, in brackets if the speedup does not count."""
    if row.verdict is None:
        return MISSING
    return row.verdict.value if row.counts else f"({row.verdict.value})"


COLUMNS: tuple[tuple[str, bool, Text], ...] = (
    ("environment", False, lambda row: row.environment),
    ("compiler", False, lambda row: plain(row.compiler)),
    ("reference ms", True, lambda row: _number(row.baseline_ms, ms_text)),
    ("ms", True, lambda row: _number(row.candidate_ms, ms_text)),
    ("speedup", False, _speedup),
    ("p", True, lambda row: _number(row.p_value, p_text)),
    ("q", True, lambda row: _number(row.q_value, p_text)),
    ("verdict", False, _verdict),
    ("results", False, lambda row: RESULTS[row.same_results]),
    ("n", True, lambda row: f"{row.n:,}" if row.n else MISSING),
)
