"""From the command line to an exit code."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from runner.app import perform
from runner.config import parse_request
from runner.errors import UsageError
from runner.exit_codes import BAD_INPUT, FAILED_PIPE, INTERRUPTED
from runner.flags import build_parser, refuse_lone_dashes
from runner.labels import plain


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program. Bad input: one sentence on stderr, code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _print_anything()
    try:
        refuse_lone_dashes(arguments)
        options = build_parser().parse_args(arguments)
        code = perform(parse_request(options), arguments)
        sys.stdout.flush()  # where it fails, it fails here and not while the interpreter ends
    except UsageError as error:
        print(f"error: {plain(str(error))}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return FAILED_PIPE
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in OURS:
            raise
        print(MISSING_PACKAGE.format(package=plain(package), python=plain(sys.executable)), file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        _forget_output()
        what = plain(str(error.filename)) if error.filename else "this program's input or output"
        print(f"error: {what} cannot be used ({error.strerror or error})", file=sys.stderr)
        return BAD_INPUT
    return code


def _print_anything() -> None:
    """Names and paths need not be text in the terminal's encoding: what it lacks becomes an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _forget_output() -> None:
    """What could not be printed is not tried again when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


OURS = ("runner", "harness", "suites", "torchduet")
MISSING_PACKAGE = (
    "error: the package {package} is not installed for {python}; "
    "use the environment that `make install` made (source .venv/bin/activate), or pip install -e ."
)
