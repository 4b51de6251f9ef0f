"""The tables of a run in several environments, for the console and for report.md: rows of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from runner.comparison import AcrossEnvironments, Summary
from runner.digits import MISSING, ms_text, p_text, speedup_text
from runner.labels import case_name, plain, suite_labels

RESULTS = {True: "same", False: "DIFFERENT", None: MISSING}
NOTE = (
    "Each row is held against eager of {reference}, in the same rounds: eager against eager first, for a "
    "speedup over an environment's own eager hides that this eager may be slower. "
    "results: whether eager there computes what the reference's computes, from the same weights and inputs."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """``droppable``: the columns that may be left out for width, the least telling first."""

    title: str
    header: tuple[str, ...]
    numbers: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    droppable: tuple[int, ...] = ()

    def within(self, width: int, gap: int) -> Table:
        """Without as many of the droppable columns as it takes to fit."""
        kept = list(range(len(self.header)))
        for column in self.droppable:
            if self._width(kept, gap) <= width:
                break
            kept.remove(column)
        return Table(
            title=self.title,
            header=tuple(self.header[i] for i in kept),
            numbers=tuple(self.numbers[i] for i in kept),
            rows=tuple(tuple(row[i] for i in kept) for row in self.rows),
        )

    def _width(self, kept: Sequence[int], gap: int) -> int:
        widths = (max(len(row[i]) for row in (self.header, *self.rows)) for i in kept)
        return sum(widths) + gap * (len(kept) - 1)


def environment_tables(summary: Summary) -> tuple[Table, ...]:
    """The averages, then a table for each suite, mode, device and dtype; () for an ordinary run."""
    if not summary.across:
        return ()
    return (_averages(summary), *_by_model(summary))


def environment_note(summary: Summary) -> str:
    """What the tables mean."""
    return NOTE.format(reference=", ".join(dict.fromkeys(one.reference for one in summary.across)))


def _averages(summary: Summary) -> Table:
    labels = suite_labels(one.suite for one in summary.across_averages)
    rows = []
    for one in summary.across_averages:
        mean = MISSING
        if one.geomean_speedup is not None:
            mean = speedup_text(one.geomean_speedup, one.geomean_low, one.geomean_high)
        where = f"{labels[one.suite]}, {one.mode}, {one.dtype}, {one.device}"
        count = f"{one.averaged}/{one.total}"
        rows.append((where, one.environment, plain(one.versions), plain(one.compiler), mean, count))
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
    labels = suite_labels(one.record.job.case.suite for one in summary.across)

    def section(one: AcrossEnvironments) -> str:
        job, case = one.record.job, one.record.job.case
        return f"{labels[case.suite]}, {case.mode.value}, {job.dtype}, {job.device}"

    sections: dict[str, list[AcrossEnvironments]] = {}
    for one in summary.across:
        sections.setdefault(section(one), []).append(one)
    for title, members in sections.items():
        rows = []
        for _, group in groupby(members, key=lambda one: one.record.job.key):
            for place, one in enumerate(group):
                name = case_name(one.record.job.case) if place == 0 else ""
                rows.append((name, *(text(one) for _, _, text in COLUMNS)))
        yield Table(
            title=f"Environments: {title}, against eager of {members[0].reference}",
            header=("model", *(header for header, _, _ in COLUMNS)),
            numbers=(False, *(number for _, number, _ in COLUMNS)),
            rows=tuple(rows),
            # who computes something else must be seen
            droppable=(10, 6, 3, 7) if any(o.same_results is False for o in members) else (10, 6, 3, 7, 9),
        )


def _number(value: float | None, text: Callable[[float], str]) -> str:
    return MISSING if value is None else text(value)


def _speedup(one: AcrossEnvironments) -> str:
    return speedup_text(one.speedup, one.ci_low, one.ci_high)


def _verdict(one: AcrossEnvironments) -> str:
    """In brackets where the results are others: such a speedup counts for nothing."""
    if one.verdict is None:
        return MISSING
    return one.verdict.value if one.counts else f"({one.verdict.value})"


COLUMNS: tuple[tuple[str, bool, Text], ...] = (
    ("environment", False, lambda one: one.environment),
    ("compiler", False, lambda one: plain(one.compiler)),
    ("reference ms", True, lambda one: _number(one.reference_ms, ms_text)),
    ("ms", True, lambda one: _number(one.ms, ms_text)),
    ("speedup", False, _speedup),
    ("p", True, lambda one: _number(one.p_value, p_text)),
    ("q", True, lambda one: _number(one.q_value, p_text)),
    ("verdict", False, _verdict),
    ("results", False, lambda one: RESULTS[one.same_results]),
    ("n", True, lambda one: f"{one.n:,}" if one.n else MISSING),
)
