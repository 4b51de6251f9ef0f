"""The tables of candidate against candidate, as rows of text, for the console, report.md and report.html."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runner.analysis.comparison import CandidatePair, CompilerRatio, Summary
from runner.analysis.digits import MISSING, p_text, speedup_text
from runner.labels import case_name, plain, suite_labels
from runner.reports.parts.grid import Table
from runner.reports.parts.sections import compiler_name

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
    labels = suite_labels(one.suite for one in ratios)
    rows = tuple(
        (
            f"{labels[one.suite]}, {one.mode}, {one.dtype}, {one.device}",
            _named(one.first, one.second),
            speedup_text(one.mean.value, one.mean.low, one.mean.high),
            speedup_text(one.mean.value, one.mean.these_low, one.mean.these_high),
            str(one.mean.models),
        )
        for one in ratios
    )
    return Table(
        title="Candidate over candidate in the same rounds: geometric mean [95 % interval]",
        header=("models", "ratio of", "for models like these", "for these models", "n"),
        numbers=(False, False, False, False, True),
        rows=rows,
        droppable=(3, 4),
    )


def _by_model(summary: Summary) -> Table:
    labels = suite_labels(one.first.record.job.case.suite for one in summary.pairs)
    return Table(
        title="Candidate over candidate, by model (above 1: the first is faster)",
        header=("model", "conditions", "ratio of", "speedup [95 % interval]", "p", "q", "verdict", "n"),
        numbers=(False, False, False, False, True, True, False, True),
        rows=tuple(_rows(summary, labels)),
        droppable=(1, 7, 4, 5),
    )


def _rows(summary: Summary, labels: dict[str, str]) -> Iterator[tuple[str, ...]]:
    last = ""
    for one in summary.pairs:
        job = one.first.record.job
        shown = job.key != last
        last = job.key
        yield (
            case_name(job.case) if shown else "",
            f"{labels[job.case.suite]}, {job.case.mode.value}, {job.dtype}, {job.device}" if shown else "",
            _named(one.first.compiler, one.second.compiler),
            *_numbers(one),
        )


def _numbers(one: CandidatePair) -> tuple[str, ...]:
    return (
        speedup_text(one.speedup, one.ci_low, one.ci_high),
        MISSING if one.p_value is None else p_text(one.p_value),
        MISSING if one.q_value is None else p_text(one.q_value),
        MISSING if one.verdict is None else one.verdict.value,
        f"{one.n:,}",
    )


def _named(first: str, second: str) -> str:
    return plain(f"{compiler_name(first)} over {compiler_name(second)}")
