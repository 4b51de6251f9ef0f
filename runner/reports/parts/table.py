"""The table of a section, for console, report.md and report.html: one line for each (model, candidate)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache

from harness import declared as declared_column
from harness.declared import EAGER, Metric, finite
from harness.metrics import declared
from harness.schema import ModelFacts, Record, Scalar, Status
from runner.analysis.columns import columns as declarations
from runner.analysis.comparison import OPERATION, Comparison
from runner.analysis.digits import (
    MISSING,
    break_even_text,
    estimate_text,
    number_text,
    share_text,
    significant,
)
from runner.analysis.estimate import Estimate
from runner.analysis.verdicts.parity import COARSE, MARK, is_coarse, percent, resolution_text
from runner.labels import batch_text, case_name, ran_batch, ran_case
from runner.reports.parts.grid import NARROW_GAP, Number, Table, TextColumn, optional, table_of
from runner.reports.parts.sections import Section, compiler_name, verdict_text

NOT_CHECKED = "not checked"
SectionColumn = TextColumn[Comparison]


def input_text(model: ModelFacts | None) -> str:
    """The shape of the largest input: ``8x128``."""
    if model is None or not model.input_shapes:
        return MISSING
    shapes = [re.findall(r"\d+", text.rsplit("[", 1)[-1]) for text in model.input_shapes]
    return "x".join(max(shapes, key=lambda shape: math.prod(map(int, shape)))) or MISSING


def batch_cell(comparison: Comparison) -> str:
    """The batch that ran; a model that failed to load may not have told it."""
    record = comparison.record
    unknown = record.model is None and ran_batch(record) is None
    return MISSING if unknown else batch_text(ran_case(record))


def verdict_or_status(comparison: Comparison) -> str:
    """The verdict, or the status if the record did not pass: for tables without a column for parity."""
    status = comparison.record.status
    return verdict_text(comparison, counts=True) if status.passed else status.value


def processes_cell(comparison: Comparison) -> str:
    """Standard deviation of the speedup between processes, and the number of processes."""
    estimate = comparison.estimate
    if estimate is None or (estimate.between_sd is None and estimate.assumed_sd is None):
        return MISSING
    if estimate.between_sd is None:
        date = comparison.record.calibrated
        source = f"calibrated {date}" if date else "assumed"
        return f"{share_text(estimate.assumed_sd or 0.0)} {source}"
    return f"{estimate.between_sd:.1%} ({estimate.processes})"


def status_word(status: Status) -> str:
    """A candidate whose parity was not checked did not pass a check."""
    return NOT_CHECKED if status is Status.PASS_DUE_TO_SKIP else status.value


def parity_word(record: Record) -> str:
    """The status in a word, with a mark where parity was coarse."""
    return f"{status_word(record.status)}{MARK if is_coarse(record) else ''}"


def coarse_note(comparisons: Iterable[Comparison]) -> str:
    """What the mark of ``parity_word`` means; "" if no comparison has it."""
    word = f"{Status.PASS.value}{MARK}"
    marked = any(is_coarse(comparison.record) for comparison in comparisons)
    return f"{word}: an error of {COARSE:.0%} of some tensor's size would have passed." if marked else ""


def parity_cell(comparison: Comparison) -> str:
    """The status; of a pass, the largest error that would pass; of an approximate candidate, its error;
    of a localized failure, the stage of the compiler and the submodule.

    Both errors are RMS errors relative to the size of their tensor.
    """
    status, parity = comparison.record.status, comparison.record.parity
    if parity is None:
        return parity_word(comparison.record)
    if status is Status.PASS and (resolution := resolution_text(parity)):
        return f"{parity_word(comparison.record)}, {resolution}"
    worst = parity.worst
    if status is Status.APPROXIMATE and worst is not None and worst.scale > 0.0:
        return f"{status.value}, off by {percent(worst.candidate_rmse / worst.scale)}"
    if status is Status.FAIL_ACCURACY and parity.where is not None and parity.where.stage:
        return f"{status.value}, {parity.where.stage} of {parity.where.module or 'the whole model'}"
    return status.value


def worst_cell(comparison: Comparison) -> str:
    """RMS error of the tensor that fails first, or is nearest to its limit, as a share of its size; beside it
    the errors of eager and of noisy eager.
    """
    worst = comparison.record.parity.worst if comparison.record.parity is not None else None
    if worst is None:
        return MISSING
    errors = (worst.candidate_rmse, worst.eager_rmse, worst.noisy_rmse)
    shares = [f"{error / (worst.scale or 1.0) * 100:.2g} %" for error in errors if error is not None]
    return f"{shares[0]} ({', '.join(shares[1:])})"


def _number(
    key: str, header: str, name: str, *, text: Callable[[float], str] | None = None, once: bool = False
) -> SectionColumn:
    """A number of ``runner.analysis.columns``. ``text``: other digits than those of its unit."""
    declaration = declarations()[name]

    def value(comparison: Comparison) -> Number:
        number = declaration.value(comparison)
        return None if isinstance(number, str) else number

    def cell(comparison: Comparison) -> str:
        number = value(comparison)
        if number is None:
            return MISSING
        return number_text(number, declaration.unit) if text is None else text(number)

    return TextColumn(header, cell, number=True, once=once, key=key, value=value)


def _speedup(key: str, name: str, estimate_of: Callable[[Comparison], Estimate | None]) -> SectionColumn:
    """With its interval; rows are sorted by the factor alone."""

    def factor(comparison: Comparison) -> float | None:
        estimate = estimate_of(comparison)
        return None if estimate is None else estimate.factor

    header = f"{name}\n[95 % interval]"
    return TextColumn(header, lambda c: estimate_text(estimate_of(c)), key=key, value=factor)


LAYOUT = (
    *("model", "parameters", "input", "batch", "eager_ms", "candidate", "ms", "speedup", "eager_tflop"),
    *("tflop", "mfu", "eager_gb", "gb", "roof", "prefill", "prefill_speedup", "decode", "decode_speedup"),
    *("p", "q", "verdict", "open", "parity", "worst", "compile", "memory", "break_even", "n", "processes"),
)
"""The order of the columns, by key. A metric's column without a place here comes last."""
ALWAYS = ("model", "candidate", "speedup", "verdict")
DROPPED = (
    *("worst", "input", "parameters", "p", "break_even", "memory", "q", "open", "processes", "n"),
    *("eager_tflop", "eager_gb", "mfu", "prefill", "batch", "roof", "tflop", "gb", "ms", "eager_ms"),
    *("compile", "decode", "prefill_speedup", "decode_speedup", "parity"),
)
"""What a narrow console omits, in this order; before them, metrics' columns without a place here."""
FIXED: tuple[SectionColumn, ...] = (
    TextColumn("model", lambda c: case_name(c.record.job.case), once=True, key="model"),
    _number("parameters", "params\nM", "parameters", text=lambda n: significant(n / 1e6, 3), once=True),
    TextColumn("input", lambda c: input_text(c.record.model), once=True, key="input"),
    TextColumn("batch", batch_cell, number=True, once=True, key="batch", value=lambda c: ran_batch(c.record)),
    _number("eager_ms", "eager\nms", "baseline_ms", once=True),
    TextColumn("candidate", lambda c: compiler_name(c.compiler), key="candidate"),
    _number("ms", "ms", "candidate_ms"),
    _speedup("speedup", "speedup", lambda c: c.estimate),
    _number("prefill", "prefill\nms", "candidate_prefill_ms"),
    _speedup("prefill_speedup", "prefill speedup", lambda c: c.generation.prefill if c.generation else None),
    _number("decode", "decode\ntokens/s", "candidate_tokens_per_s"),
    _speedup("decode_speedup", "decode speedup", lambda c: c.generation.decode if c.generation else None),
    _number("p", "p", "p_value"),
    _number("q", "q", "q_value"),
    TextColumn("verdict", lambda c: verdict_text(c, counts=c.passed), key="verdict"),
    TextColumn("open\nbecause", lambda c: c.open.reason.value if c.open else MISSING, key="open"),
    TextColumn("parity", parity_cell, key="parity"),
    TextColumn("worst error\n(eager, noisy eager)", worst_cell, key="worst"),
    TextColumn(
        "break-even\nsteps",
        lambda c: optional(c.break_even, break_even_text),
        number=True,
        key="break_even",
        value=lambda c: c.break_even.steps if c.break_even else None,
    ),
    _number("n", "n", "n", text=lambda n: f"{n:,}"),
    TextColumn(
        "sd between\nprocesses (n)",
        processes_cell,
        number=True,
        key="processes",
        value=lambda c: (c.estimate.between_sd or c.estimate.assumed_sd) if c.estimate else None,
    ),
)


@cache
def columns() -> tuple[SectionColumn, ...]:
    """All columns: the fixed columns and the columns that metrics declare."""
    of_metrics = (_declared(column, metric) for column, metric in declared().columns())
    return tuple(sorted((*FIXED, *of_metrics), key=lambda column: _place(column.key, LAYOUT, len(LAYOUT))))


def _place(key: str, order: Sequence[str], otherwise: int) -> int:
    return order.index(key) if key in order else otherwise


def _declared(column: declared_column.Column, metric: Metric) -> SectionColumn:
    def value(comparison: Comparison) -> Scalar:
        if column.operations_only and OPERATION not in comparison.record.job.case.tags:
            return None
        number = comparison.value(column.side + metric.name)
        return comparison.value(column.or_else) if column.or_else and not number else number

    def cell(comparison: Comparison) -> str:
        number = value(comparison)
        text = number if isinstance(number, str) else finite(number)
        star = "*" if column.starred_by and comparison.value(column.starred_by) else ""
        return MISSING if text is None else number_text(text, metric.unit, metric.digits) + star

    is_text = metric.unit == "text"
    return TextColumn(
        column.header,
        cell,
        number=not is_text,
        once=column.side == EAGER,
        key=column.key,
        value=None if is_text else lambda c: finite(value(c)),
    )


def section_table(section: Section, **instead: Callable[[Comparison], str]) -> Table:
    """The columns that are not empty in this section. ``instead``: other texts of these columns, by key.

    Texts of the model appear once. They appear again if a candidate had another baseline: after a crash, or
    with --isolate, candidates are measured in workers of their own.
    """
    shown = [replace(c, text=instead[c.key]) if c.key in instead else c for c in columns()]
    dropped = sorted((c for c in shown if c.key not in ALWAYS), key=lambda c: _place(c.key, DROPPED, -1))
    names = [column.header for column in dropped]
    return table_of(section.title, section.comparisons, shown, names, lambda c: c.record.job.key).filled()


def narrow_table(section: Section, width: int) -> Table:
    """The table in ``width`` characters; wider if the columns that always stay need more.

    If it does not fit as it is, parity is a word, or takes the verdict's place where it failed.
    """
    table = section_table(section).within(width)
    if table.omitted or table.gap == NARROW_GAP:
        table = section_table(section, parity=lambda c: parity_word(c.record)).within(width)
    if "parity" in table.omitted:
        table = section_table(section, verdict=verdict_or_status).within(width)
    return table
