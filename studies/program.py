"""Runs of the program, which studies C and F consist of."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.cli.actions import chosen, measure
from runner.cli.exit_codes import FAILURES, INTERRUPTED, OK
from runner.cli.parser import parsed
from runner.cli.upstream import understood
from runner.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]


def replaced(flags: Sequence[str], more: Sequence[str]) -> list[str]:
    """``flags`` without those that ``more`` gives, and ``more``."""
    theirs = understood(more)[0].keys()
    return [*(flag for flag in flags if not theirs & understood([flag])[0].keys()), *more]


def check(study: str, words: Sequence[str]) -> None:
    """``UsageError`` if the flags are not those of a measurement."""
    typed, _ = understood(words)
    if chosen(typed) is not measure:
        raise UsageError(f"{study} measures; give flags of other actions to runner.py")
    parsed(measure, typed)


def run_program(words: Sequence[str], what: str) -> None:
    """``what``: the run, in the ``UsageError`` of one that could not measure.

    After Ctrl-C, ``subprocess.run`` would kill the run before it has kept its rounds.
    """
    code, command = None, [sys.executable, str(ROOT / "runner.py"), *words]
    with subprocess.Popen(command, start_new_session=True) as process:
        while code is None:
            try:
                code = process.wait()
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code not in (OK, FAILURES):
        raise UsageError(f"{what} ended with exit code {code}")
