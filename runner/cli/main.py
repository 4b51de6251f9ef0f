"""From the command line to an exit code."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence

from runner.cli.actions import chosen, with_flag
from runner.cli.exit_codes import BAD_INPUT, FAILED_PIPE, INTERRUPTED
from runner.cli.parser import parsed
from runner.cli.streams import STANDARD_OUTPUT, forget_unprinted, output_fails, prepare_streams, tell
from runner.cli.upstream import understood
from runner.errors import UsageError
from runner.interrupts import ended_by
from runner.names import plain
from runner.store.invocation import program


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; returns the exit code. For bad input: a message on stderr and code 2."""
    arguments = with_flag(sys.argv[1:] if argv is None else argv)

    def perform() -> int:
        if not arguments:
            raise UsageError(NOTHING.format(program=shlex.join(program())))
        typed, notes = understood(arguments)
        action = chosen(typed)
        asked = parsed(action, typed)
        for note in notes:
            print(f"note: {plain(note)}", file=sys.stderr)
        return action.perform(asked, arguments)

    return guarded(perform)


def guarded(
    perform: Callable[[], int], *, stopped: str = "stopped", place: str = "this program's input or output"
) -> int:
    """The exit code of ``perform``; an expected exception is one sentence, on ``place`` if on no file."""
    prepare_streams()
    with ended_by() as signals:
        code = _code(perform, stopped, place)
        forget_unprinted()
    return 128 + signals[0] if signals else code


def _code(perform: Callable[[], int], stopped: str, place: str) -> int:
    try:
        code = perform()
        sys.stdout.flush()  # raises here, not when the interpreter ends
    except UsageError as error:
        tell(f"error: {plain(str(error))}")
        return BAD_INPUT
    except KeyboardInterrupt:
        tell(stopped)
        return INTERRUPTED
    except BrokenPipeError:
        return FAILED_PIPE
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in OURS:
            raise
        tell(MISSING_PACKAGE.format(package=plain(package), python=plain(sys.executable)))
        return BAD_INPUT
    except OSError as error:
        what = error.filename or (STANDARD_OUTPUT if output_fails() else place)
        tell(f"error: {plain(str(what))} cannot be used ({error.strerror or error})")
        return BAD_INPUT
    return code


NOTHING = (
    "say what to measure, for example: {program} --suites=tiny_gpt --training --quick; "
    "--list has the models, --help every flag"
)
OURS = ("runner", "harness", "suites", "studies", "torchduet")
MISSING_PACKAGE = (
    "error: the package {package} is not installed for {python}; "
    "use the environment that `make install` made (source .venv/bin/activate), or pip install -e ."
)
