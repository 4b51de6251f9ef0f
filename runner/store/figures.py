"""The table of a check's figures beside a case's log. ``harness.parity.check`` writes it."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.backends.settings.candidates import file_name
from harness.schema import Record

NUMBERS = ("eager", "noisy", "candidate", "limit")
ORDER = ("input_gradient", "gradient", "parameter", "buffer", "output", "loss")  # from the input on


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one tensor, at the call at which it is nearest to its limit. Errors are shares of its size.

    None: not a finite number. ``outcome``: ``pass``, ``sensitive``, ``fail`` or ``not judged``.
    """

    tensor: str
    call: int
    eager: float | None
    noisy: float | None
    candidate: float | None
    limit: float | None
    outcome: str


def figures_file(candidate: str) -> str:
    return f"parity-{file_name(candidate)}.csv"


def read_figures(run: Path, records: Iterable[Record]) -> dict[tuple[str, str], tuple[Figures, ...]]:
    """By job and candidate: a step's tensors, from input to output. Records without a table have none."""
    figures = {}
    for record in records:
        path = run / "cases" / record.job.key / figures_file(record.candidate)
        try:
            with path.open(newline="", encoding="utf-8") as file:
                rows = [row for row in csv.DictReader(file) if row["elements"] not in ("", "0")]
            tensors = [_figures(row) for row in rows]  # without parts of the model, and what eager lacks
        except (OSError, ValueError, KeyError, TypeError, csv.Error):  # none, or edited
            continue
        worst: dict[str, Figures] = {}
        for figure in tensors:
            worst[figure.tensor] = max(worst.get(figure.tensor, figure), figure, key=_rank)
        shown = sorted(worst.values(), key=lambda f: (*ORDER, kind := f.tensor.split(".", 1)[0]).index(kind))
        figures[record.job.key, record.candidate] = tuple(shown)
    return figures


def _rank(figures: Figures) -> tuple[bool, float]:
    return figures.outcome == "fail", (figures.candidate or 0.0) / (figures.limit or math.inf)


def _figures(row: dict[str, str]) -> Figures:
    finite = {name: value if math.isfinite(value := float(row[name])) else None for name in NUMBERS}
    return Figures(tensor=row["tensor"], call=int(row["call"]), outcome=row["outcome"], **finite)
