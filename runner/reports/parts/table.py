"""The table of a section, for console, report.md and report.html: one line for each (model, candidate)."""

from __future__ import annotations

from dataclasses import replace

from runner.analysis.columns import Column, columns
from runner.analysis.results import Comparison
from runner.reports.parts.grid import Table, table_of
from runner.reports.parts.sections import Section


def section_table(section: Section) -> Table:
    """The columns that are not empty in this section.

    Texts of the model appear once. They appear again if a candidate had another baseline: after a crash, or
    with --isolate, candidates are measured in workers of their own.
    """
    shown = [column for column in columns().values() if column.header]
    brief = [replace(column, text=column.brief or column.text) for column in shown]
    droppable = [c.header for c in sorted(shown, key=lambda c: -c.drop) if c.drop]

    def of(some: list[Column[Comparison]]) -> Table:
        return table_of(section.title, section.comparisons, some, droppable, lambda c: c.record.job.key)

    return replace(of(shown), brief=of(brief).rows).filled()
