"""Runs of the program, which studies C and F consist of."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.cli.actions import chosen, measure
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


def measured(words: Sequence[str]) -> int:
    """The exit code. After Ctrl-C, ``subprocess.run`` would kill the run before it has kept its rounds."""
    command = [sys.executable, str(ROOT / "runner.py"), *words]
    with subprocess.Popen(command, start_new_session=True) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
