"""What the benchmarks share: the parser of their flags, and the loop over models that keeps its outcomes."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from harness.loading.suite_files import load_suite
from harness.schema import DTYPES, Case, Mode, Setting

Outcome = TypeVar("Outcome", bound=Any)
"""A dataclass with ``model``, ``mode`` and ``dtype``."""


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
    kind: type[Outcome],
    measure: Callable[[str, Case, str], Iterable[Outcome]],
) -> list[Outcome]:
    """The outcomes of ``measure(suite, case, precision)`` for the models of these suites (None: all).

    The order is random, and always the same: a part of it is a fair sample. A model that fails costs itself.
    """
    outcomes = [kind(**line) for line in _kept(options.keep)] if options.keep is not None else []
    done = {(outcome.model, outcome.mode, outcome.dtype) for outcome in outcomes}
    start = time.monotonic()
    for suite, case, dtype in _cells(options, suites):
        if options.minutes is not None and time.monotonic() - start > 60 * options.minutes:
            break
        if (case.name, case.mode.value, dtype) in done:
            continue
        begun, title = time.monotonic(), f"{case.name}, {case.mode.value}, {dtype}"
        try:
            new = list(measure(suite, case, dtype))
        except Exception as error:  # the other models can run
            print(f"{title}: {error}", file=sys.stderr, flush=True)
            continue
        print(f"{title}: {len(new)} in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        outcomes += new
        if options.keep is not None:
            with options.keep.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(outcome)) + "\n" for outcome in new)
    return outcomes


def _kept(path: Path) -> list[dict[str, Any]]:
    """The whole lines of the file, without the cell that a kill has cut: it is measured again."""
    whole, _, torn = (path.read_text(encoding="utf-8") if path.exists() else "").rpartition("\n")
    lines = [json.loads(line) for line in whole.splitlines()]
    if torn:
        cells = [(line["model"], line["mode"], line["dtype"]) for line in lines]
        lines = [line for line, cell in zip(lines, cells, strict=True) if cell != cells[-1]]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return lines


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
