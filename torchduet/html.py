"""A result in a notebook: table, warnings and picture in one piece of HTML that loads no other files."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from runner.analysis.comparison import Comparison
from runner.analysis.digits import MISSING, ms_text, ratio_text, seconds_text, speedup_text
from runner.labels import plain
from runner.reports.parts.table import parity_cell
from torchduet.words import NOT_ISOLATED, shown_name, title

if TYPE_CHECKING:
    from torchduet.result import Result

HEADER = ("compiler", "eager ms", "ms", "speedup [95 % interval]", "verdict", "parity", "compile s", "memory")
LEFT, RIGHT = "text-align: left", "text-align: right"
STYLES = (LEFT, RIGHT, RIGHT, LEFT, LEFT, LEFT, RIGHT, RIGHT)


def page(result: Result) -> str:
    """The HTML for ``_repr_html_``. All text is escaped."""
    return "\n".join(("<div>", *_lines(result), "</div>"))


def _lines(result: Result) -> Iterator[str]:
    summary = result.summary
    yield f"<p><b>{_text(title(result.records))}</b></p>"
    yield "<table>"
    yield _row(HEADER, "th")
    yield from (_row(_cells(comparison), "td") for comparison in summary.comparisons)
    yield "</table>"
    for finding in summary.warnings:
        yield f"<p><b>{_text(finding.title)}</b></p>"
        yield f"<ul>{''.join(f'<li>{_text(case)}</li>' for case in finding.cases)}</ul>"
        yield f"<p>{_text(finding.advice)}</p>"
    if not result.isolated:
        yield f"<p>{NOT_ISOLATED[0].upper()}{NOT_ISOLATED[1:]}.</p>"
    if any(comparison.speedup is not None for comparison in summary.comparisons):
        yield _picture(result)


def _row(cells: tuple[str, ...], tag: str) -> str:
    styled = zip(cells, STYLES, strict=True)
    inner = "".join(f"<{tag} style='{style}'>{_text(cell)}</{tag}>" for cell, style in styled)
    return f"<tr>{inner}</tr>"


def _cells(comparison: Comparison) -> tuple[str, ...]:
    status = comparison.record.status
    verdict = comparison.verdict.value if comparison.verdict is not None else MISSING
    return (
        shown_name(comparison),
        MISSING if comparison.baseline_ms is None else ms_text(comparison.baseline_ms),
        MISSING if comparison.candidate_ms is None else ms_text(comparison.candidate_ms),
        speedup_text(comparison.speedup, comparison.ci_low, comparison.ci_high),
        verdict if status.passed else f"({verdict})",
        parity_cell(comparison),
        MISSING
        if comparison.compilation_latency_s is None
        else seconds_text(comparison.compilation_latency_s),
        MISSING if comparison.memory_ratio is None else ratio_text(comparison.memory_ratio),
    )


def _picture(result: Result) -> str:
    file = io.BytesIO()
    result.plot().savefig(file, format="png", dpi=100, bbox_inches="tight")
    data = base64.b64encode(file.getvalue()).decode()
    alt = "speedup of each compiler with its interval"
    return f'<img alt="{alt}" style="max-width: 100%" src="data:image/png;base64,{data}">'


def _text(text: str) -> str:
    return escape(plain(text))
