"""A result in a notebook: table, warnings and picture in one piece of HTML that loads no other files."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from runner.labels import job_title, plain
from runner.reports.parts.sections import Section, compiler_name, sections
from runner.reports.parts.table import narrow_table

if TYPE_CHECKING:
    from torchduet.result import Result

WIDTH = 110  # characters of a table that fits into a notebook
ALT = "speedup of each compiler with its interval"


def page(result: Result) -> str:
    """The HTML for ``_repr_html_``. All text is escaped."""
    return "\n".join(_lines(result))


def _lines(result: Result) -> Iterator[str]:
    summary = result.summary
    yield f"<div><p><b>{_text(job_title(result.records[0].job))}</b></p>"
    for section in sections(summary):
        yield _table(section)
    for comparison in summary.comparisons:
        for what, lines in comparison.explanations():
            yield _list(f"{compiler_name(comparison.compiler)}: {what}", lines)
    for finding in summary.warnings:
        yield _list(finding.title, finding.cases)
        yield f"<p>{_text(finding.advice)}</p>"
    yield _list("Notes", result.notes)
    if any(comparison.speedup is not None for comparison in summary.comparisons):
        file = io.BytesIO()
        result.plot().savefig(file, format="png", dpi=100, bbox_inches="tight")
        data = base64.b64encode(file.getvalue()).decode()
        yield f'<img alt="{ALT}" style="max-width: 100%" src="data:image/png;base64,{data}">'
    yield "</div>"


def _table(section: Section) -> str:
    from tabulate import tabulate

    table = narrow_table(section, WIDTH)
    return tabulate(
        [[_line(text) for text in row] for row in table.rows],
        [_line(header) for header in table.header],
        tablefmt="html",  # it escapes the texts
        disable_numparse=True,
        colalign=["right" if number else "left" for number in table.numbers],
    )


def _list(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return f"<p><b>{_text(title)}</b></p><ul>{items}</ul>"


def _text(text: str) -> str:
    return escape(_line(text))


def _line(text: str) -> str:
    return plain(text.replace("\n", " "))
