"""``python -m studies``: one command for each study, and ``report`` to write a report again."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.cli.exit_codes import OK
from runner.cli.main import guarded
from runner.cli.parser import add_flag
from runner.errors import UsageError
from runner.plan.settings import read, rows
from studies.journal import read_lines
from studies.options import (
    CompileModesOptions,
    ImplementationsOptions,
    OneCoreOptions,
    StudyOptions,
    TrainingTimeOptions,
)
from studies.report import finish

STUDIES: Mapping[str, tuple[StudyOptions, str]] = {
    "training-time": (TrainingTimeOptions(), "A: a small GPT, by precision and compiler"),
    "implementations": (ImplementationsOptions(), "B: four small language models, two tasks"),
    "compile-modes": (CompileModesOptions(), "C: torch.compile's modes, compile time and run time"),
    "one-core": (OneCoreOptions(), "F: published speedups on one core, model by model"),
}
RUNS = ("one-core", "compile-modes")  # these are runs of the program, and take its flags


def _module(study: str, name: str) -> Any:
    """A study's ``run`` has ``run(options, command, flags that are not its own) -> its folder``; its
    ``report`` has ``render(lines) -> Report``. Those of ``RUNS`` have both in ``run``, with ``is_of(folder)``
    and ``render(folder)``."""
    return importlib.import_module(f"studies.{study.replace('-', '_')}.{name}")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}; see python -m studies --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns the exit code. For bad input: a message on stderr and code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return guarded(
        lambda: _perform(arguments),
        stopped="stopped: the records are kept; see python -m studies report --help",
        place="the study's folder",
    )


def _perform(arguments: Sequence[str]) -> int:
    parser = _Parser(prog="python -m studies", description="Published studies, run again.")
    studies = parser.add_subparsers(dest="study", required=True, metavar="STUDY", parser_class=_Parser)
    for name, (options, text) in STUDIES.items():
        study = studies.add_parser(name, help=text, allow_abbrev=False, argument_default=argparse.SUPPRESS)
        for flag in (flag for _, _, row in rows(options) if row for flag in row.flags):
            add_flag(study, flag)
    again = studies.add_parser("report", help="write tables and plots again, from a study's folder")
    again.add_argument("folder", type=Path, help="the folder of a study")
    given, more = parser.parse_known_args(arguments)
    if more and given.study not in RUNS:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    if given.study == "report":
        return report(given.folder)
    asked = read(STUDIES[given.study][0], vars(given)).checked()
    folder = _module(given.study, "run").run(asked, arguments, more)
    return OK if getattr(asked, "records_only", False) else report(folder)


def report(folder: Path) -> int:
    """Writes the tables and plots of a study from its records, prints the report; 1 if a check failed."""
    for study in (_module(name, "run") for name in RUNS):
        if study.is_of(folder):
            return finish(folder, study.render(folder))
    lines = read_lines(folder)
    name = str(lines[0].get("study"))
    if name not in STUDIES:
        raise UsageError(f"report: {folder} has the records of an unknown study")
    try:
        written = _module(name, "report").render(lines)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"report: the records in {folder} are damaged ({error!r})") from None
    return finish(folder, written)


if __name__ == "__main__":
    sys.exit(main())
