"""``python suites/x.py FLAGS`` as another way to say ``python runner.py --suites=x FLAGS``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

_SUITES = Path(__file__).resolve().parent


def command(suite_file: str, argv: Sequence[str]) -> list[str]:
    """The runner's command line for the suite in ``suite_file``: a file of suites/, or in a folder of it."""
    suite = Path(suite_file).resolve().relative_to(_SUITES).parts[0].removesuffix(".py")
    return [sys.executable, str(_SUITES.parent / "runner.py"), f"--suites={suite}", *argv]


def run(suite_file: str, argv: Sequence[str]) -> NoReturn:
    """Replaces this process by the runner's, so signals and the exit status are the runner's."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, command(suite_file, argv))  # noqa: S606 -- no shell is wanted
