"""The tables of candidate against candidate, as rows of text, for the console, report.md and report.html."""

from __future__ import annotations

from collections.abc import Sequence

from runner.analysis.comparison import CandidatePair, CompilerRatio, Summary
from runner.analysis.digits import p_text, speedup_text
from runner.labels import case_name, plain, suite_labels
from runner.reports.parts.grid import Table, TextColumn, optional, table_of
from runner.reports.parts.sections import compiler_name, conditions, conditions_of

MOST_ON_A_CONSOLE = 12  # rows; report.md and report.html have all


def pair_tables(summary: Summary) -> tuple[Table, ...]:
    """The means over several models, then every model."""
    by_model = (_by_model(summary),) if summary.pairs else ()
    return (*_means(summary), *by_model)


def short_pair_tables(summary: Summary) -> tuple[Table, ...]:
    """For the console: the means, if they are few."""
    return tuple(table for table in _means(summary) if len(table.rows) <= MOST_ON_A_CONSOLE)


def _means(summary: Summary) -> tuple[Table, ...]:
    """() for single models: their ratios are in the other table."""
    several = [ratio for ratio in summary.ratios if ratio.mean.models > 1]
    return (_ratios(several),) if several else ()


def _ratios(ratios: Sequence[CompilerRatio]) -> Table:
    labels = suite_labels(ratio.suite for ratio in ratios)
    cells: tuple[TextColumn[CompilerRatio], ...] = (
        TextColumn("models", lambda r: conditions(labels[r.suite], r.mode, r.dtype, r.device)),
        TextColumn("ratio of", lambda r: _named(r.first, r.second)),
        TextColumn("for models like these", lambda r: speedup_text(r.mean.value, r.mean.low, r.mean.high)),
        TextColumn(
            "for these models", lambda r: speedup_text(r.mean.value, r.mean.these_low, r.mean.these_high)
        ),
        TextColumn("n", lambda r: str(r.mean.models), number=True),
    )
    title = "Candidate over candidate in the same rounds: geometric mean [95 % interval]"
    return table_of(title, ratios, cells, droppable=("for these models", "n"))


def _by_model(summary: Summary) -> Table:
    labels = suite_labels(pair.first.record.job.case.suite for pair in summary.pairs)
    cells: tuple[TextColumn[CandidatePair], ...] = (
        TextColumn("model", lambda pair: case_name(pair.first.record.job.case), once=True),
        TextColumn("conditions", lambda pair: conditions_of(pair.first.record, labels), once=True),
        TextColumn("ratio of", lambda pair: _named(pair.first.compiler, pair.second.compiler)),
        TextColumn(
            "speedup [95 % interval]", lambda pair: speedup_text(pair.speedup, pair.ci_low, pair.ci_high)
        ),
        TextColumn("p", lambda pair: optional(pair.p_value, p_text), number=True),
        TextColumn("q", lambda pair: optional(pair.q_value, p_text), number=True),
        TextColumn("verdict", lambda pair: optional(pair.verdict, lambda verdict: verdict.value)),
        TextColumn("n", lambda pair: f"{pair.n:,}", number=True),
    )
    title = "Candidate over candidate, by model (above 1: the first is faster)"
    droppable = ("conditions", "n", "p", "q")
    return table_of(title, summary.pairs, cells, droppable, group=lambda pair: pair.first.record.job.key)


def _named(first: str, second: str) -> str:
    return plain(f"{compiler_name(first)} over {compiler_name(second)}")
