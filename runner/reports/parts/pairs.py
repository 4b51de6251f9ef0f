"""The tables of candidate against candidate, and of compilations, as rows of text, for all reports."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from harness.declared import Metric
from harness.metrics import declared
from runner.analysis.digits import estimate_text, interval_text, number_text, p_text, seconds_text
from runner.analysis.estimate import Estimate
from runner.analysis.results import COMPILATIONS, PAIRS, Average, CompileStart, Ratio, Side, Summary
from runner.analysis.texts import compiler_name
from runner.labels import case_name, plain
from runner.reports.parts.averages import mean_text, these_models_text
from runner.reports.parts.grid import Table, TextColumn, optional, table_of
from runner.reports.parts.sections import conditions, conditions_of

LATENCY = "compilation_latency_s"
MOST_ON_A_CONSOLE = 12  # rows; report.md and report.html have all


def pair_tables(summary: Summary) -> tuple[Table, ...]:
    """The means over several models, then every model."""
    by_model = (_by_model(summary),) if summary.of(PAIRS) else ()
    return (*_means(summary), *by_model)


def short_pair_tables(summary: Summary) -> tuple[Table, ...]:
    """For the console: the means, if they are few."""
    return tuple(table for table in _means(summary) if len(table.rows) <= MOST_ON_A_CONSOLE)


def _means(summary: Summary) -> tuple[Table, ...]:
    """() for single models: their ratios are in the other table."""
    ratios = [ratio for ratio in summary.averages_of(PAIRS) if ratio.mean.models > 1]
    if not ratios:
        return ()
    labels = summary.labels
    cells: tuple[TextColumn[Average], ...] = (
        TextColumn("models", lambda r: conditions(labels[r.place.suite], *r.place[1:])),
        TextColumn("ratio of", lambda r: _named(r.first, r.second)),
        TextColumn("for models like these", lambda r: mean_text(r.mean)),
        TextColumn("for these models", lambda r: these_models_text(r.mean)),
        TextColumn("n", lambda r: str(r.mean.models), is_number=True),
    )
    title = "Candidate over candidate in the same rounds: geometric mean [95 % interval]"
    return (table_of(title, ratios, cells, droppable=("for these models", "n")),)


def _by_model(summary: Summary) -> Table:
    labels = summary.labels
    cells: tuple[TextColumn[Ratio], ...] = (
        TextColumn("model", lambda pair: case_name(pair.record.job.case), once=True),
        TextColumn("conditions", lambda pair: conditions_of(pair.record, labels), once=True),
        TextColumn("ratio of", lambda pair: _named(pair.first, pair.second)),
        TextColumn("speedup [95 % interval]", lambda pair: estimate_text(pair.estimate)),
        TextColumn("p", lambda pair: optional(pair.estimate, lambda e: p_text(e.p_value)), is_number=True),
        TextColumn("q", lambda pair: optional(pair.q_value, p_text), is_number=True),
        TextColumn("verdict", lambda pair: optional(pair.verdict, lambda verdict: verdict.value)),
        TextColumn("n", lambda pair: optional(pair.estimate, lambda e: f"{e.n:,}"), is_number=True),
    )
    title = "Candidate over candidate, by model (above 1: the first is faster)"
    droppable = ("conditions", "n", "p", "q")
    return table_of(title, summary.of(PAIRS), cells, droppable, group=lambda pair: pair.record.job.key)


def _named(first: Side, second: Side) -> str:
    return plain(f"{compiler_name(first.name)} over {compiler_name(second.name)}")


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
    return (table, _compile_pairs(summary)) if summary.of(COMPILATIONS) else (table,)


def _compile_columns() -> Iterator[TextColumn[CompileStart]]:
    """The phases, and what stands beside them."""
    headed = [(f"{m.phase} s", m) for m in declared().metrics if m.phase and m.name != LATENCY]
    headed.append(("host memory", declared().by_name["compile_peak_host_bytes"]))
    for header, metric in headed:
        yield TextColumn(header, partial(_mean_of, metric), is_number=True)


def typical_seconds(seconds: Estimate) -> str:
    """The seconds with their interval, if several processes give one."""
    if seconds.low is None or seconds.high is None:
        return seconds_text(seconds.factor)
    return interval_text(seconds.factor, seconds.low, seconds.high)


def _mean_of(metric: Metric, row: CompileStart) -> str:
    return optional(row.means.get(metric.name), lambda mean: number_text(mean, metric.unit))


def _compile_pairs(summary: Summary) -> Table:
    labels = summary.labels
    cells: tuple[TextColumn[Ratio], ...] = (
        TextColumn("model", lambda pair: case_name(pair.record.job.case), once=True),
        TextColumn("conditions", lambda pair: conditions_of(pair.record, labels), once=True),
        TextColumn("ratio of", _compared),
        TextColumn("speedup [95 % interval]", lambda pair: estimate_text(pair.estimate)),
        TextColumn("p", lambda pair: optional(pair.estimate, lambda e: p_text(e.p_value)), is_number=True),
        TextColumn("q", lambda pair: optional(pair.q_value, p_text), is_number=True),
        TextColumn("verdict", lambda pair: optional(pair.verdict, lambda verdict: verdict.value)),
        TextColumn("closes with", lambda pair: pair.open.closes if pair.open else ""),
    )
    title = "Compilation over compilation, in the same rounds (above 1: the first is faster)"
    droppable = ("conditions", "p", "q", "closes with")
    return table_of(title, summary.of(COMPILATIONS), cells, droppable, lambda pair: pair.record.job.key)


def _compared(pair: Ratio) -> str:
    if pair.record is pair.other:
        return plain(f"{compiler_name(pair.first.name)}, {pair.first.start} over {pair.second.start}")
    return f"{_named(pair.first, pair.second)}, {pair.first.start}"
