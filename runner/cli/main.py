"""From the command line to an exit code."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence

from runner.cli.actions import chosen, with_flag
from runner.cli.exit_codes import BAD_INPUT, FAILED_PIPE, INTERRUPTED
from runner.cli.parser import flags, given, parsed
from runner.cli.upstream.words import translated
from runner.errors import UsageError
from runner.labels import plain
from runner.store.invocation import program


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns the exit code. For bad input: a message on stderr and code 2."""
    arguments = with_flag(sys.argv[1:] if argv is None else argv)

    def perform() -> int:
        if not arguments:
            raise UsageError(NOTHING.format(program=shlex.join(program())))
        words, notes = translated(arguments, tuple(flags()))
        typed = given(words)
        action = chosen(typed)
        asked = parsed(action, typed)
        for note in notes:
            print(f"note: {plain(note)}", file=sys.stderr)
        return action.perform(asked, arguments)

    return guarded(perform)


def guarded(
    perform: Callable[[], int], *, stopped: str = "stopped", place: str = "this program's input or output"
) -> int:
    """The exit code of ``perform``. An expected exception becomes one sentence on stderr, and its code.

    ``stopped``: the sentence after Ctrl-C. ``place``: what cannot be used, if an ``OSError`` names no file.
    """
    _print_anything()
    try:
        code = perform()
        sys.stdout.flush()  # raises here, not when the interpreter ends
    except UsageError as error:
        print(f"error: {plain(str(error))}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
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
        what = plain(str(error.filename)) if error.filename else place
        print(f"error: {what} cannot be used ({error.strerror or error})", file=sys.stderr)
        return BAD_INPUT
    return code


def _print_anything() -> None:
    """Prints characters that the terminal's encoding does not have as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _forget_output() -> None:
    """Prevents a second attempt to print when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


NOTHING = (
    "say what to measure, for example: {program} --suites=tiny_gpt --training --quick; "
    "--list has the models, --help every flag"
)
OURS = ("runner", "harness", "suites", "studies", "torchduet")
MISSING_PACKAGE = (
    "error: the package {package} is not installed for {python}; "
    "use the environment that `make install` made (source .venv/bin/activate), or pip install -e ."
)
