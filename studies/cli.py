"""From the command line to an exit code: one command for each study, and ``report`` to derive again."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.errors import UsageError
from runner.exit_codes import BAD_INPUT, FAILED_PIPE, INTERRUPTED
from runner.labels import plain
from studies.compile_modes_options import add_compile_modes, compile_modes_options
from studies.implementations_options import add_implementations, implementations_options
from studies.options import add_training_time, training_time_options


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}; see python -m studies --help")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m studies", description=__doc__.split("\n")[0] if __doc__ else None)
    studies = parser.add_subparsers(dest="study", required=True, metavar="STUDY", parser_class=_Parser)
    add_training_time(
        studies.add_parser(
            "training-time", help="A: a small GPT, by precision and compiler", allow_abbrev=False
        )
    )
    add_implementations(
        studies.add_parser(
            "implementations", help="B: four small language models, two tasks", allow_abbrev=False
        )
    )
    add_compile_modes(
        studies.add_parser(
            "compile-modes", help="C: torch.compile's modes, compile time and run time", allow_abbrev=False
        )
    )
    report = studies.add_parser("report", help="tables and plots again, from a study's folder")
    report.add_argument("folders", type=Path, nargs="+", help="one; or several of A, for one table of all")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program. Bad input: one sentence on stderr, code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _perform(build_parser().parse_args(arguments), arguments)
    except UsageError as error:
        print(f"error: {plain(str(error))}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("stopped: what was recorded is kept; see python -m studies report --help", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        with contextlib.suppress(OSError):  # or the interpreter tries to print the rest when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED_PIPE
    except OSError as error:
        what = plain(str(error.filename)) if error.filename else "the study's folder"
        print(f"error: {what} cannot be used ({error.strerror or error})", file=sys.stderr)
        return BAD_INPUT


def _perform(given: argparse.Namespace, arguments: Sequence[str]) -> int:
    if given.study == "report":
        from studies.report import join, report

        return report(given.folders[0]) if len(given.folders) == 1 else join(given.folders)
    if given.study == "implementations":
        from studies.implementations import run as run_implementations

        return run_implementations(implementations_options(given), arguments)
    if given.study == "compile-modes":
        from studies.compile_modes import run as run_compile_modes

        return run_compile_modes(compile_modes_options(given), arguments)
    from studies.training_time import run

    return run(training_time_options(given), arguments)
