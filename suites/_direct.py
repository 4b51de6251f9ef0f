"""``python suites/x.py FLAGS`` as another way to say ``python runner.py --suites=x FLAGS``.

Without imports of ours: a script sees its own folder only.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def run(suite_file: str) -> NoReturn:
    """Replaces this process by the runner's, so signals and the exit status are the runner's."""
    suite = Path(suite_file).resolve()
    command = [sys.executable, str(suite.parents[1] / "runner.py"), f"--suites={suite.stem}", *sys.argv[1:]]
    os.execv(sys.executable, command)  # noqa: S606 -- no shell is wanted
