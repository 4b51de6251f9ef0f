"""What the benchmarks share: the parser of their flags, and the loop over models that keeps its outcomes."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from harness.loading.suite_files import load_suite
from harness.schema import DTYPES, Case, Mode, Parity, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of a cell: a model in this mode and precision. ``outcomes_of`` fills in the first three."""

    model: str = ""
    mode: str = ""
    dtype: str = ""
    status: str = ""
    used: float | None = None  # the largest share of a limit that is used
    why: str = ""  # the worst tensor, and why it fails

    @property
    def cell(self) -> tuple[str, str, str]:
        return self.model, self.mode, self.dtype


T = TypeVar("T", bound=Outcome)


def why_of(parity: Parity | None) -> str:
    worst = parity.worst if parity is not None and parity.failed else None
    return f"{worst.name}: {worst.failure}" if worst is not None else ""


def new_parser(about: str | None) -> argparse.ArgumentParser:
    """``about``: the docstring of the script, which ``--help`` shows as it is."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def words_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """The type of a flag: words separated by commas, each of them known; "" may be known, and is left out."""

    def parse(text: str) -> list[str]:
        words = text.split(",")
        if unknown := [word for word in words if word not in known]:
            choices = ", ".join(filter(None, known))
            raise argparse.ArgumentTypeError(f"{' and '.join(map(repr, unknown))}: none of {choices}")
        return [word for word in words if word]

    return parse


def models_parser(about: str | None, dtypes: str) -> argparse.ArgumentParser:
    parser = new_parser(about)
    parser.add_argument("--only", help="these models, separated by commas")
    parser.add_argument("--dtypes", default=dtypes, type=words_of(DTYPES))
    parser.add_argument("--modes", default="training,inference", type=words_of([mode.value for mode in Mode]))
    parser.add_argument("--scale", default="tiny", choices=("tiny", "small"))
    parser.add_argument("--minutes", type=float, help="begin no model after this time")
    parser.add_argument("--keep", type=Path, help="write each outcome to this file; continue where it ends")
    return parser


def outcomes_of(
    options: argparse.Namespace,
    suites: Mapping[str, Collection[str] | None],
    kind: type[T],
    measure: Callable[[str, Case, str], Iterable[T]],
) -> list[T]:
    """The outcomes of ``measure(suite, case, precision)`` for the models of these suites (None: all).

    The order is random, and always the same: a part of it is a fair sample. A model that fails costs itself.
    """
    outcomes = _kept(options.keep, kind) if options.keep is not None else []
    done = {outcome.cell for outcome in outcomes}
    start = time.monotonic()
    for suite, case, dtype in _cells(options, suites):
        if options.minutes is not None and time.monotonic() - start > 60 * options.minutes:
            break
        if (cell := (case.name, case.mode.value, dtype)) in done:
            continue
        begun, title = time.monotonic(), ", ".join(cell)
        try:
            new = [replace(o, model=cell[0], mode=cell[1], dtype=dtype) for o in measure(suite, case, dtype)]
        except Exception as error:  # the other models can run
            print(f"{title}: {error}", file=sys.stderr, flush=True)
            continue
        print(f"{title}: {len(new)} in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        outcomes += new
        if options.keep is not None:
            _keep(options.keep, new)
    return outcomes


def _kept(path: Path, kind: type[T]) -> list[T]:
    """Those of the file, without the cell that a kill has cut: it is measured again."""
    whole, _, torn = (path.read_text(encoding="utf-8") if path.exists() else "").rpartition("\n")
    outcomes = [kind(**json.loads(line)) for line in whole.splitlines()]
    if torn:
        outcomes = [outcome for outcome in outcomes if outcome.cell != outcomes[-1].cell]
        _keep(path, outcomes, "w")
    return outcomes


def _keep(path: Path, outcomes: Iterable[Outcome], how: str = "a") -> None:
    with path.open(how, encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(outcome)) + "\n" for outcome in outcomes)


def _cells(
    options: argparse.Namespace, suites: Mapping[str, Collection[str] | None]
) -> list[tuple[str, Case, str]]:
    only = options.only.split(",") if options.only else None
    cells = [
        (suite, case, dtype)
        for suite, models in suites.items()
        for mode in options.modes
        for case in load_suite(suite).cases(Setting(mode=Mode(mode), device_type="cpu", scale=options.scale))
        for dtype in options.dtypes
        if (only or models) is None or case.name in (only or models or ())
    ]
    if missing := {*(only or ())} - {case.name for _, case, _ in cells}:
        raise SystemExit(f"error: --only: no such model: {', '.join(sorted(missing))}")
    random.Random(0).shuffle(cells)
    return cells
