"""The studies' command line: one command for each study, and ``report`` to write a report again."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner.cli.exit_codes import FAILURES, OK
from runner.cli.main import guarded
from runner.cli.parser import add_flag
from runner.errors import UsageError
from runner.plan.settings import read, rows
from studies import compile_modes
from studies.implementations.options import ImplementationsOptions
from studies.journal import JOURNALED, package_of, read_lines, write_files
from studies.options import StudyOptions
from studies.training_time.options import TrainingTimeOptions

COMPILE_MODES = "compile-modes"
STUDIES: dict[str, tuple[StudyOptions, str]] = {
    "training-time": (TrainingTimeOptions(), "A: a small GPT, by precision and compiler"),
    "implementations": (ImplementationsOptions(), "B: four small language models, two tasks"),
    COMPILE_MODES: (
        compile_modes.CompileModesOptions(),
        "C: torch.compile's modes, compile time and run time",
    ),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}; see python -m studies --help")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m studies", description=__doc__.split("\n")[0] if __doc__ else None)
    studies = parser.add_subparsers(dest="study", required=True, metavar="STUDY", parser_class=_Parser)
    for name, (options, text) in STUDIES.items():
        study = studies.add_parser(name, help=text, allow_abbrev=False, argument_default=argparse.SUPPRESS)
        for _, _, row in rows(options):
            for flag in row.flags if row is not None else ():
                add_flag(study, flag)
    again = studies.add_parser("report", help="write tables and plots again, from a study's folder")
    again.add_argument("folder", type=Path, help="the folder of a study")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns the exit code. For bad input: a message on stderr and code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return guarded(
        lambda: _perform(arguments),
        stopped="stopped: the records are kept; see python -m studies report --help",
        place="the study's folder",
    )


def _perform(arguments: Sequence[str]) -> int:
    parser = build_parser()
    given, more = parser.parse_known_args(arguments)
    if more and given.study != COMPILE_MODES:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    if given.study == "report":
        parts = compile_modes.parts_of(given.folder)
        return compile_modes.report(given.folder, parts) if parts else report(given.folder)
    default: Any = STUDIES[given.study][0]
    options = read(default, vars(given)).checked()
    if given.study == COMPILE_MODES:
        return compile_modes.run(options, more)
    folder = importlib.import_module(f"{package_of(given.study)}.run").run(options, arguments)
    return OK if getattr(options, "records_only", False) else report(folder)


def report(folder: Path) -> int:
    """Writes the tables and plots of a study from its records, prints the report; 1 if a check failed."""
    lines = read_lines(folder)
    name = lines[0].get("study")
    if name not in JOURNALED:
        raise UsageError(f"report: {folder} has the records of an unknown study")
    try:
        files, failures = importlib.import_module(f"{package_of(name)}.report").render(lines)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"report: the records in {folder} are damaged ({error!r})") from None
    write_files(folder, files)
    print(files["report.md"].decode())
    for failure in failures:
        print(f"failed: {failure}")
    print(f"everything is in {folder}")
    return FAILURES if failures else OK
