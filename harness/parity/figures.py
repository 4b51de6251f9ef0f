"""The table of a check's figures: each tensor at each call that was judged, and each part of the model.

It stands beside the case's log. Errors are shares of the tensor's size; a part of the model has slopes alone.
A call that repeats an earlier one has no rows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from harness.parity.calls import OTHER
from harness.parity.measure import EXACT

if TYPE_CHECKING:
    from harness.parity.check import Check

COLUMNS = (
    *("call", "tensor", "elements", "size", "eager", "noisy", "candidate", "part", "slope", "limit"),
    "outcome",
)
"""``noisy``: the largest error of eager and its noisy runs. ``limit``: of ``candidate``."""
PASS, FAIL, SENSITIVE, NOT_JUDGED = "pass", "fail", "sensitive", "not judged"


def write(path: Path, check: Check) -> None:
    """Writes the table; a line in the log if the disk does not take it, which costs no verdict."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(COLUMNS)
            table.writerows(_rows(check))
    except OSError as error:
        print(f"no table of parity's figures: {error}", flush=True)


def _rows(check: Check) -> Iterator[tuple[object, ...]]:
    failed = {(judgment.name, judgment.call >= OTHER) for judgment, _ in check.failures}
    for judgment in check.judgments:
        truth, name, error = check.truth_of(judgment), judgment.name, judgment.error
        beyond = bool(judgment.beyond or judgment.form)
        if beyond and (name, judgment.call >= OTHER) in failed:
            outcome = FAIL
        elif name in truth.own and truth.is_noise(name):
            outcome = NOT_JUDGED
        else:
            outcome = SENSITIVE if beyond else PASS
        if name not in truth.eager and name in truth.own:  # a part of the model
            slopes = truth.own[name].of("slope"), truth.noisy(name, "slope")[0]
            shown = "", "", *map(_text, slopes), "", "", _text(error.slope)
            yield judgment.call, name, *shown, _text(judgment.limits["slope"]), outcome
            continue
        tensor = truth.eager.get(name)
        own = truth.relative(name, truth.own.get(name, EXACT))
        noisy = truth.noisy(name, "size")[0] if tensor is not None else 0.0
        limit = judgment.limits.get("size", 0.0)
        figures = [truth.scales.get(name, 0.0), own.size, noisy, error.size, error.part, error.slope, limit]
        yield judgment.call, name, 0 if tensor is None else tensor.numel(), *map(_text, figures), outcome


def _text(figure: float) -> str:
    return f"{figure:.3g}"
