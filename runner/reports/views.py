"""The views of a run, in the order of report.md; a console has the lists last. Another view is one entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from harness.codec import to_json
from runner.analysis.columns import columns, text_column
from runner.analysis.results import CONTROL, Finding, Result, Summary
from runner.analysis.texts import coarse_note, compiler_name, failures_text
from runner.names import case_name, merged_facts, plain
from runner.reports.closing import closing_lines
from runner.reports.parts.averages import AVERAGES, fast_lines
from runner.reports.parts.curves import CURVES
from runner.reports.parts.numerics import NUMERICS
from runner.reports.parts.ratios import CANDIDATES, COMPILED, ENVIRONMENTS
from runner.reports.parts.rows_alone import ROWS
from runner.reports.parts.sections import (
    environment_line,
    plot_name,
    protocol_line,
    rounds_text,
    sections,
    top_models,
)
from runner.reports.parts.start_up import START_UP
from runner.reports.parts.trajectory import TRAJECTORIES
from runner.reports.parts.view import HTML, MARKDOWN, TABLES, Lists, View

Fact = tuple[str, str]
EXPLAINED = "explanations"  # lists that a console always has: only --explain and the like make them

# -- the results ---------------------------------------------------------------------


def _notes(summary: Summary, rows: Sequence[Result]) -> Iterator[str]:
    """How many passed, and how the table is read."""
    counted, names = [c for c in rows if c.status.counted], dict.fromkeys(c.compiler for c in rows)
    rates = ", ".join(f"{compiler_name(name)} {_passed(counted, name)}" for name in names)
    checked = any(c.record.job.protocol.accuracy for c in counted)
    how = f"{'passed' if checked else 'parity not checked; ran'}: {rates}"
    yield "; ".join(filter(None, (rounds_text(rows), how, protocol_line(rows))))
    facts = merged_facts(c.record for c in rows)
    # a worker that could not load the model tells nothing
    if "torch" in facts and facts != summary.environment:
        yield environment_line(facts)
    if CONTROL in names:
        yield f"{compiler_name(CONTROL)} compares eager with itself: its speedup should be 1.00x."
    if any(c.verdict is not None and not c.passed for c in rows):
        yield "A verdict in brackets: the candidate did not pass, so its speedup does not count."
    yield coarse_note(rows)


def _passed(counted: Sequence[Result], compiler: str) -> str:
    """``30/40 (wrong 2, crashed 7, not judged 1)``"""
    own = [c for c in counted if c.compiler == compiler]
    return f"{sum(c.passed for c in own)}/{len(own)}{failures_text(own)}"


def _pictures(summary: Summary, rows: Sequence[Result]) -> Iterator[str]:
    timed = dict.fromkeys((c.record.job.case.suite, c.record.job.dtype) for c in rows if c.n)
    labels = summary.labels
    yield from (plot_name(labels[suite], dtype) for suite, dtype in timed)


RESULTS: View[Summary, Result] = View(
    name="comparisons",
    rows=lambda summary: summary.comparisons,
    columns=lambda _: columns().values(),
    parts=lambda summary: [(part.title, part.comparisons) for part in sections(summary)],
    # texts of the model appear again if a candidate had another baseline, as after a crash or with --isolate
    group=lambda comparison: comparison.record.job.key,
    short=top_models,
    notes=_notes,
    pictures=_pictures,
)


# -- lists ---------------------------------------------------------------------------


def _explanations(summary: Summary) -> Iterator[Finding]:
    for c in summary.comparisons:
        case = c.record.job.case
        for what, lines in c.explanations():
            name = f"{case_name(case)} {case.mode.value}, {compiler_name(c.compiler)}"
            yield Finding(title=f"{name}: {what}", cases=lines)


def _commands(summary: Summary) -> Iterator[Finding]:
    for part in sections(summary):
        lines = [plain(c.record.reproduce) for c in part.comparisons if c.record.reproduce]
        if lines:
            yield Finding(title=f"Reproduction commands: {part.title}", cases=tuple(lines))


FACTS: View[Summary, Fact] = View(
    name="facts",
    title="Every fact that the workers reported",
    rows=lambda summary: [(k, "" if v is None else str(v)) for k, v in sorted(summary.environment.items())],
    columns=lambda _: (text_column("fact", lambda fact: fact[0]), text_column("value", lambda fact: fact[1])),
    outlets=(MARKDOWN, HTML),
    folded=0,
)
VIEWS: tuple[View[Summary, Any] | Lists[Summary], ...] = (
    Lists(
        name="answers",
        title="Executive summary",
        lists=lambda summary: [Finding(title="", cases=(*closing_lines(summary), *fast_lines(summary)))],
        outlets=(MARKDOWN,),
    ),
    AVERAGES,
    *ENVIRONMENTS,
    CURVES,
    Lists(
        name="warnings",
        title="Warnings",
        lists=lambda summary: summary.warnings,
        data=lambda summary: to_json(summary.warnings),
    ),
    Lists(
        name="caveats",
        title="Notes",
        lists=lambda summary: [Finding(title="", cases=summary.caveats)] if summary.caveats else [],
        data=lambda summary: [*summary.caveats],
    ),
    RESULTS,
    NUMERICS,
    TRAJECTORIES,
    Lists(name=EXPLAINED, title="", lists=_explanations, folded=True, outlets=TABLES),
    Lists(name="commands", title="", lists=_commands, folded=True, code=True, outlets=(MARKDOWN,)),
    *COMPILED,
    *START_UP,
    *CANDIDATES,
    ROWS,
    FACTS,
)
