"""The columns of a section's table, for the console and report.md: one line for each (model, candidate)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from harness import declared as declared_column
from harness.declared import EAGER, Metric, finite
from harness.metrics import declared
from harness.schema import ModelFacts, Record, Scalar, Status
from runner.analysis.columns import columns as declarations
from runner.analysis.comparison import OPERATION, Comparison, Part
from runner.analysis.digits import (
    MISSING,
    break_even_text,
    number_text,
    share_text,
    significant,
    speedup_text,
)
from runner.labels import batch_text, case_name, ran_batch, ran_case
from runner.reports.parts.sections import Section, compiler_name

Number = float | int | None
NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """``header`` may have two lines. ``of_model`` cells are the same for all candidates of a model.

    ``value``: the sort key in report.html; without it, the text is the key.
    """

    key: str
    header: str
    cell: Callable[[Comparison], str]
    value: Callable[[Comparison], Number] | None = None
    number: bool = False
    of_model: bool = False


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


def verdict_text(comparison: Comparison) -> str:
    """The verdict; in brackets if parity failed, because the speedup then does not count."""
    if comparison.verdict is None:
        return MISSING
    word = comparison.verdict.value
    return word if comparison.record.status.passed else f"({word})"


def verdict_or_status(comparison: Comparison) -> str:
    """The verdict, or the status if the record did not pass: for tables without a column for parity."""
    status = comparison.record.status
    return verdict_text(comparison) if status.passed else status.value


def speedup_cell(comparison: Comparison) -> str:
    return speedup_text(comparison.speedup, comparison.ci_low, comparison.ci_high)


def break_even_cell(comparison: Comparison) -> str:
    known = comparison.break_even
    return (
        MISSING if known is None else break_even_text(known.steps, known.low, known.high, whole=known.whole)
    )


def _part_cell(part: Part | None) -> str:
    return MISSING if part is None else speedup_text(part.speedup, part.ci_low, part.ci_high)


def processes_cell(comparison: Comparison) -> str:
    """Standard deviation of the speedup between processes, and the number of processes."""
    estimate = comparison.estimate
    if estimate is None or (estimate.between_sd is None and estimate.assumed_sd is None):
        return MISSING
    if estimate.between_sd is None:
        return f"{share_text(estimate.assumed_sd or 0.0)} assumed"
    return f"{estimate.between_sd:.1%} ({estimate.processes})"


def parity_word(record: Record) -> str:
    """The status in a word; a candidate whose parity was not checked did not pass a check."""
    return NOT_CHECKED if record.status is Status.PASS_DUE_TO_SKIP else record.status.value


def parity_cell(comparison: Comparison) -> str:
    """The status; of a pass, the largest error that would pass; of an approximate candidate, its error;
    of a localized failure, the stage of the compiler and the submodule.

    Both errors are RMS errors relative to the size of their tensor.
    """
    status, parity = comparison.record.status, comparison.record.parity
    if parity is None:
        return parity_word(comparison.record)
    if status is Status.PASS and parity.resolution_largest is not None:
        return f"{status.value}, to {significant(parity.resolution_largest * 100, 2)} %"
    worst = parity.worst
    if status is Status.APPROXIMATE and worst is not None and worst.scale > 0.0:
        return f"{status.value}, off by {significant(worst.candidate_rmse / worst.scale * 100, 2)} %"
    if status is Status.FAIL_ACCURACY and parity.where is not None and parity.where.stage:
        part = "every part" if parity.where.everywhere else parity.where.module or "the whole model"
        return f"{status.value}, {parity.where.stage} of {part}"
    return status.value


def worst_cell(comparison: Comparison) -> str:
    """RMS error of the tensor that is nearest to its limit, and the limit."""
    worst = comparison.record.parity.worst if comparison.record.parity is not None else None
    return MISSING if worst is None else f"{worst.candidate_rmse:.2g} / {worst.allowed:.2g}"


def _number(
    key: str, header: str, name: str, *, text: Callable[[float], str] | None = None, of_model: bool = False
) -> Column:
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

    return Column(key=key, header=header, cell=cell, value=value, number=True, of_model=of_model)


LAYOUT = (
    *("model", "parameters", "input", "batch", "eager_ms", "candidate", "ms", "speedup", "eager_tflop"),
    *("tflop", "mfu", "eager_gb", "gb", "roof", "prefill", "prefill_speedup", "decode", "decode_speedup"),
    *("p", "q", "verdict", "parity", "worst", "compile", "memory", "break_even", "n", "processes"),
)
"""The order of the columns, by key. A metric's column without a place here comes last."""
ALWAYS = ("model", "candidate", "speedup", "verdict")
DROPPED = (
    *("worst", "input", "parameters", "p", "break_even", "memory", "q", "processes", "n", "eager_tflop"),
    *("eager_gb", "mfu", "prefill", "batch", "roof", "tflop", "gb", "ms", "eager_ms", "compile"),
    *("decode", "prefill_speedup", "decode_speedup", "parity"),
)
"""What a narrow console omits, in this order; before them, metrics' columns without a place here."""
FIXED = (
    Column(key="model", header="model", cell=lambda c: case_name(c.record.job.case), of_model=True),
    _number("parameters", "params\nM", "parameters", text=lambda n: significant(n / 1e6, 3), of_model=True),
    Column(key="input", header="input", cell=lambda c: input_text(c.record.model), of_model=True),
    Column(
        key="batch",
        value=lambda c: ran_batch(c.record),
        header="batch",
        cell=batch_cell,
        number=True,
        of_model=True,
    ),
    _number("eager_ms", "eager\nms", "baseline_ms", of_model=True),
    Column(key="candidate", header="candidate", cell=lambda c: compiler_name(c.compiler)),
    _number("ms", "ms", "candidate_ms"),
    Column(key="speedup", value=lambda c: c.speedup, header="speedup\n[95 % interval]", cell=speedup_cell),
    _number("prefill", "prefill\nms", "candidate_prefill_ms"),
    Column(
        key="prefill_speedup",
        header="prefill speedup\n[95 % interval]",
        cell=lambda c: _part_cell(c.generation.prefill if c.generation else None),
    ),
    _number("decode", "decode\ntokens/s", "candidate_tokens_per_s"),
    Column(
        key="decode_speedup",
        header="decode speedup\n[95 % interval]",
        cell=lambda c: _part_cell(c.generation.decode if c.generation else None),
    ),
    _number("p", "p", "p_value"),
    _number("q", "q", "q_value"),
    Column(key="verdict", header="verdict", cell=verdict_text),
    Column(key="parity", header="parity", cell=parity_cell),
    Column(key="worst", header="worst error\n/ its limit", cell=worst_cell),
    Column(
        key="break_even",
        value=lambda c: c.break_even_steps,
        header="break-even\nsteps",
        cell=break_even_cell,
        number=True,
    ),
    _number("n", "n", "n", text=lambda n: f"{n:,}"),
    Column(key="processes", header="sd between\nprocesses (n)", cell=processes_cell, number=True),
)


@cache
def columns() -> tuple[Column, ...]:
    """All columns: the fixed columns and the columns that metrics declare."""
    of_metrics = (_declared(column, metric) for column, metric in declared().columns())
    return tuple(sorted((*FIXED, *of_metrics), key=lambda column: _place(column.key, LAYOUT, len(LAYOUT))))


def droppable(columns: Iterable[Column]) -> list[Column]:
    """The columns that a narrow console may omit, in the order in which it omits them."""
    chosen = [column for column in columns if column.key not in ALWAYS]
    return sorted(chosen, key=lambda column: _place(column.key, DROPPED, -1))


def _place(key: str, order: Sequence[str], otherwise: int) -> int:
    return order.index(key) if key in order else otherwise


def _declared(column: declared_column.Column, metric: Metric) -> Column:
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
    return Column(
        key=column.key,
        header=column.header,
        cell=cell,
        value=None if is_text else lambda c: finite(value(c)),
        number=not is_text,
        of_model=column.side == EAGER,
    )


def filled_columns(section: Section) -> tuple[Column, ...]:
    """The columns that are not empty in this section."""
    return tuple(
        column for column in columns() if any(column.cell(c) != MISSING for c in section.comparisons)
    )


def lines(section: Section, columns: tuple[Column, ...]) -> Iterator[tuple[str, ...]]:
    """The cells of each comparison.

    Cells of the model appear once. They appear again if a candidate had another baseline: after a crash,
    or with --isolate, candidates are measured in workers of their own.
    """
    for _, group in groupby(section.comparisons, key=lambda c: c.record.job.key):
        members = tuple(group)
        shown: dict[str, str] = {}
        for place, comparison in enumerate(members):
            cells = []
            for column in columns:
                text = column.cell(comparison)
                if column.of_model:
                    if place == 0 and text == MISSING:  # the candidate failed before eager was timed
                        text = _first_present(column, members)
                    repeated = shown.get(column.key) == text or (place > 0 and text == MISSING)
                    shown[column.key] = shown[column.key] if repeated else text
                    text = "" if repeated else text
                cells.append(text)
            yield tuple(cells)


def _first_present(column: Column, members: tuple[Comparison, ...]) -> str:
    texts = (column.cell(comparison) for comparison in members)
    return next((text for text in texts if text != MISSING), MISSING)
