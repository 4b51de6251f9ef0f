"""The tables of candidate against candidate, and of compilations, as rows of text, for all reports."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from harness.declared import Metric
from harness.metrics import declared
from runner.analysis.comparison import CandidatePair, CompilePair, CompilerRatio, CompileStart, Summary
from runner.analysis.digits import estimate_text, interval_text, number_text, p_text, seconds_text
from runner.analysis.estimate import MOST_NAMED, Typical, Verdict
from runner.analysis.texts import compiler_name
from runner.labels import case_name, plain
from runner.reports.parts.averages import mean_text, these_models_text
from runner.reports.parts.grid import Table, TextColumn, optional, table_of
from runner.reports.parts.sections import conditions, conditions_of

LATENCY = "compilation_latency_s"
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
    ratios = [ratio for ratio in summary.ratios if ratio.mean.models > 1]
    if not ratios:
        return ()
    labels = summary.labels
    cells: tuple[TextColumn[CompilerRatio], ...] = (
        TextColumn("models", lambda r: conditions(labels[r.suite], r.mode, r.dtype, r.device)),
        TextColumn("ratio of", lambda r: _named(r.first, r.second)),
        TextColumn("for models like these", lambda r: mean_text(r.mean)),
        TextColumn("for these models", lambda r: these_models_text(r.mean)),
        TextColumn("n", lambda r: str(r.mean.models), is_number=True),
    )
    title = "Candidate over candidate in the same rounds: geometric mean [95 % interval]"
    return (table_of(title, ratios, cells, droppable=("for these models", "n")),)


def _by_model(summary: Summary) -> Table:
    labels = summary.labels
    cells: tuple[TextColumn[CandidatePair], ...] = (
        TextColumn("model", lambda pair: case_name(pair.first.record.job.case), once=True),
        TextColumn("conditions", lambda pair: conditions_of(pair.first.record, labels), once=True),
        TextColumn("ratio of", lambda pair: _named(pair.first.compiler, pair.second.compiler)),
        TextColumn("speedup [95 % interval]", lambda pair: estimate_text(pair.estimate)),
        TextColumn("p", lambda pair: optional(pair.p_value, p_text), is_number=True),
        TextColumn("q", lambda pair: optional(pair.q_value, p_text), is_number=True),
        TextColumn("verdict", lambda pair: optional(pair.verdict, lambda verdict: verdict.value)),
        TextColumn("n", lambda pair: f"{pair.n:,}", is_number=True),
    )
    title = "Candidate over candidate, by model (above 1: the first is faster)"
    droppable = ("conditions", "n", "p", "q")
    return table_of(title, summary.pairs, cells, droppable, group=lambda pair: pair.first.record.job.key)


def _named(first: str, second: str) -> str:
    return plain(f"{compiler_name(first)} over {compiler_name(second)}")


def compile_tables(summary: Summary) -> tuple[Table, ...]:
    """What compiling takes from cold and warm caches, and who compiles faster; () without --compile-runs."""
    rows, labels = summary.compile_starts, summary.labels
    if not rows:
        return ()
    cells: list[TextColumn[CompileStart]] = [
        TextColumn("model", lambda row: case_name(row.comparison.record.job.case), once=True),
        TextColumn("conditions", lambda row: conditions_of(row.comparison.record, labels), once=True),
        TextColumn("candidate", lambda row: compiler_name(row.comparison.compiler), once=True),
        TextColumn("caches", lambda row: row.start),
        TextColumn("seconds [95 % interval]", lambda row: typical_seconds(row.time), is_number=True),
        *_compile_columns(),
        TextColumn("n", lambda row: str(row.n), is_number=True),
    ]
    title = "Compilations in fresh processes: geometric means"
    droppable = ["conditions", *(cell.header for cell in reversed(cells[5:-1]))]
    table = table_of(
        title, rows, cells, droppable, lambda row: (row.comparison.record.job.key, row.comparison.compiler)
    ).filled()
    return (table, _compile_pairs(summary)) if summary.compile_pairs else (table,)


def _compile_columns() -> Iterator[TextColumn[CompileStart]]:
    """The phases, and what stands beside them."""
    headed = [(f"{m.phase} s", m) for m in declared().metrics if m.phase and m.name != LATENCY]
    headed.append(("host memory", declared().by_name["compile_peak_host_bytes"]))
    for header, metric in headed:
        yield TextColumn(header, partial(_mean_of, metric), is_number=True)


def typical_seconds(seconds: Typical) -> str:
    """The seconds with their interval, if several processes give one."""
    if seconds.low is None or seconds.high is None:
        return seconds_text(seconds.value)
    return interval_text(seconds.value, seconds.low, seconds.high)


def _mean_of(metric: Metric, row: CompileStart) -> str:
    return optional(row.means.get(metric.name), lambda mean: number_text(mean, metric.unit))


def _compile_pairs(summary: Summary) -> Table:
    labels = summary.labels
    cells: tuple[TextColumn[CompilePair], ...] = (
        TextColumn("model", lambda pair: case_name(pair.first.record.job.case), once=True),
        TextColumn("conditions", lambda pair: conditions_of(pair.first.record, labels), once=True),
        TextColumn("ratio of", _compared),
        TextColumn("speedup [95 % interval]", lambda pair: estimate_text(pair.ratio)),
        TextColumn("p", lambda pair: p_text(pair.ratio.p_value), is_number=True),
        TextColumn("q", lambda pair: optional(pair.q_value, p_text), is_number=True),
        TextColumn("verdict", lambda pair: optional(pair.verdict, lambda verdict: verdict.value)),
        TextColumn("closes with, of each", _needed),
    )
    title = "Compilation over compilation, in the same rounds (above 1: the first is faster)"
    droppable = ("conditions", "p", "q", "closes with, of each")
    return table_of(title, summary.compile_pairs, cells, droppable, lambda pair: pair.first.record.job.key)


def _needed(pair: CompilePair) -> str:
    if pair.verdict is not Verdict.INCONCLUSIVE:
        return ""
    return f"about {pair.needed}" if pair.needed else f"over {MOST_NAMED}"


def _compared(pair: CompilePair) -> str:
    if pair.first is pair.second:
        return plain(f"{compiler_name(pair.first.compiler)}, {pair.first_start} over {pair.second_start}")
    return f"{_named(pair.first.compiler, pair.second.compiler)}, {pair.first_start}"
