"""The columns of a section's table, for the console and for report.md: one line a (model, candidate)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from harness.schema import ModelFacts
from runner.comparison import OPERATION, Comparison, Part, Work
from runner.digits import (
    MISSING,
    ms_text,
    p_text,
    ratio_text,
    seconds_text,
    share_text,
    significant,
    speedup_text,
    steps_text,
)
from runner.labels import batch_text, case_name, ran_case
from runner.reports._sections import Section, compiler_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """``header`` may have two lines. ``of_model`` cells are the same for all candidates of a model."""

    key: str
    header: str
    cell: Callable[[Comparison], str]
    number: bool = False
    of_model: bool = False


def number_cell(
    value: Callable[[Comparison], float | None], text: Callable[[float], str]
) -> Callable[[Comparison], str]:
    """A cell for a number that may be missing."""

    def cell(comparison: Comparison) -> str:
        found = value(comparison)
        return MISSING if found is None else text(found)

    return cell


def input_text(model: ModelFacts | None) -> str:
    """The shape of the largest input: ``8x128``."""
    if model is None or not model.input_shapes:
        return MISSING
    shapes = [re.findall(r"\d+", text.rsplit("[", 1)[-1]) for text in model.input_shapes]
    return "x".join(max(shapes, key=lambda shape: math.prod(map(int, shape)))) or MISSING


def _millions(comparison: Comparison) -> float | None:
    model = comparison.record.model
    return None if model is None else model.parameters / 1e6


def verdict_text(comparison: Comparison) -> str:
    """The verdict; in brackets where parity failed, because such a speedup counts for nothing."""
    if comparison.verdict is None:
        return MISSING
    word = comparison.verdict.value
    return word if comparison.record.status.passed else f"({word})"


def verdict_or_status(comparison: Comparison) -> str:
    """For tables that have room for one word only."""
    status = comparison.record.status
    return verdict_text(comparison) if status.passed else status.value


def speedup_cell(comparison: Comparison) -> str:
    return speedup_text(comparison.speedup, comparison.ci_low, comparison.ci_high)


def _rate_cell(
    rate: Callable[[Work], float | None], text: Callable[[float], str]
) -> Callable[[Comparison], str]:
    """What single operations achieve; whole models have it in the CSV files and in report.html."""

    def of_operation(comparison: Comparison) -> float | None:
        single = OPERATION in comparison.record.job.case.tags
        return rate(comparison.work) if comparison.work is not None and single else None

    return number_cell(of_operation, text)


def _three_digits(value: float) -> str:
    return significant(value, 3)


def _part_cell(part: Part | None) -> str:
    return MISSING if part is None else speedup_text(part.speedup, part.ci_low, part.ci_high)


def processes_cell(comparison: Comparison) -> str:
    """Standard deviation of the speedup between processes, and how many there were."""
    if comparison.between_sd is None:
        return MISSING
    return f"{comparison.between_sd:.1%} ({comparison.processes})"


def worst_cell(comparison: Comparison) -> str:
    """RMS error of the tensor nearest its limit, and that limit."""
    worst = comparison.record.parity.worst if comparison.record.parity is not None else None
    return MISSING if worst is None else f"{worst.candidate_rmse:.2g} / {worst.allowed:.2g}"


COLUMNS = (
    Column(key="model", header="model", cell=lambda c: case_name(c.record.job.case), of_model=True),
    Column(
        key="parameters",
        header="params\nM",
        cell=number_cell(_millions, lambda n: significant(n, 3)),
        number=True,
        of_model=True,
    ),
    Column(key="input", header="input", cell=lambda c: input_text(c.record.model), of_model=True),
    Column(
        key="batch", header="batch", cell=lambda c: batch_text(ran_case(c.record)), number=True, of_model=True
    ),
    Column(
        key="eager_ms",
        header="eager\nms",
        cell=number_cell(lambda c: c.baseline_ms, ms_text),
        number=True,
        of_model=True,
    ),
    Column(key="candidate", header="candidate", cell=lambda c: compiler_name(c.compiler)),
    Column(key="ms", header="ms", cell=number_cell(lambda c: c.candidate_ms, ms_text), number=True),
    Column(key="speedup", header="speedup\n[95 % interval]", cell=speedup_cell),
    Column(
        key="eager_tflop",
        header="eager\nTFLOP/s",
        cell=_rate_cell(lambda w: w.baseline_tflop_per_s, _three_digits),
        number=True,
        of_model=True,
    ),
    Column(
        key="tflop",
        header="TFLOP/s",
        cell=_rate_cell(lambda w: w.candidate_tflop_per_s, _three_digits),
        number=True,
    ),
    Column(
        key="mfu",
        header="MFU\nmeasured",
        cell=_rate_cell(lambda w: w.candidate_share_of_measured, share_text),
        number=True,
    ),
    Column(
        key="eager_gb",
        header="eager\nGB/s",
        cell=_rate_cell(lambda w: w.baseline_gb_per_s, _three_digits),
        number=True,
        of_model=True,
    ),
    Column(
        key="gb", header="GB/s", cell=_rate_cell(lambda w: w.candidate_gb_per_s, _three_digits), number=True
    ),
    Column(
        key="roof",
        header="of\nroof",
        cell=_rate_cell(lambda w: w.candidate_share_of_roof or w.candidate_share_of_bandwidth, share_text),
        number=True,
    ),
    Column(
        key="prefill",
        header="prefill\nms",
        cell=number_cell(lambda c: c.generation.prefill.candidate_ms if c.generation else None, ms_text),
        number=True,
    ),
    Column(
        key="prefill_speedup",
        header="prefill speedup\n[95 % interval]",
        cell=lambda c: _part_cell(c.generation.prefill if c.generation else None),
    ),
    Column(
        key="decode",
        header="decode\ntokens/s",
        cell=number_cell(
            lambda c: c.generation.candidate_tokens_per_s if c.generation else None,
            lambda n: significant(n, 3),
        ),
        number=True,
    ),
    Column(
        key="decode_speedup",
        header="decode speedup\n[95 % interval]",
        cell=lambda c: _part_cell(c.generation.decode if c.generation else None),
    ),
    Column(key="p", header="p", cell=number_cell(lambda c: c.p_value, p_text), number=True),
    Column(key="q", header="q", cell=number_cell(lambda c: c.q_value, p_text), number=True),
    Column(key="verdict", header="verdict", cell=verdict_text),
    Column(key="parity", header="parity", cell=lambda c: c.record.status.value),
    Column(
        key="worst",
        header="worst error\n/ its limit",
        cell=worst_cell,
    ),
    Column(
        key="compile",
        header="compile\ns",
        cell=number_cell(lambda c: c.compilation_latency_s, seconds_text),
        number=True,
    ),
    Column(
        key="memory",
        header="memory\nratio",
        cell=number_cell(lambda c: c.memory_ratio, ratio_text),
        number=True,
    ),
    Column(
        key="break_even",
        header="break-even\nsteps",
        cell=number_cell(lambda c: c.break_even_steps, steps_text),
        number=True,
    ),
    Column(
        key="n",
        header="n",
        cell=number_cell(lambda c: c.n or None, lambda n: f"{n:,}"),
        number=True,
    ),
    Column(key="processes", header="sd between\nprocesses (n)", cell=processes_cell, number=True),
)


def filled_columns(section: Section) -> tuple[Column, ...]:
    """The columns that hold something in this section: nothing timed, no column of times."""
    return tuple(column for column in COLUMNS if any(column.cell(c) != MISSING for c in section.comparisons))


def lines(section: Section, columns: tuple[Column, ...]) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """(whether it is the model's first line, cells) for each comparison.

    A model's own cells stand once, and again only where a candidate was held against another eager:
    after a crash, or with --isolate, candidates are measured in workers of their own.
    """
    for _, group in groupby(section.comparisons, key=lambda c: c.record.job.key):
        members = tuple(group)
        shown: dict[str, str] = {}
        for place, comparison in enumerate(members):
            cells = []
            for column in columns:
                text = column.cell(comparison)
                if column.of_model:
                    if place == 0 and text == MISSING:  # this one failed before eager was timed
                        text = _first_present(column, members)
                    repeated = shown.get(column.key) == text or (place > 0 and text == MISSING)
                    shown[column.key] = shown[column.key] if repeated else text
                    text = "" if repeated else text
                cells.append(text)
            yield place == 0, tuple(cells)


def _first_present(column: Column, members: tuple[Comparison, ...]) -> str:
    texts = (column.cell(comparison) for comparison in members)
    return next((text for text in texts if text != MISSING), MISSING)
