"""The words that start the program in the current folder, for printed commands."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from harness.hardware.installed import version_of

SCRIPT = Path(__file__).resolve().parents[2] / "runner.py"
INSTALLED = ("torchduet",)
WORKER = "harness.worker"  # for python -m; in the wheel, setup.py makes it torchduet.harness.worker


def in_clone(script: Path = SCRIPT) -> bool:
    """Whether the current folder is the clone that this program runs from."""
    here = Path.cwd() / "runner.py"
    return script.is_file() and here.is_file() and here.samefile(script)


def program(script: Path = SCRIPT) -> tuple[str, ...]:
    """``python runner.py`` in the clone; elsewhere ``torchduet`` or, where it is not installed, by path."""
    if in_clone(script):
        return ("python", "runner.py")
    if script.is_file() and not _installed():
        return ("python", str(script))
    return INSTALLED


def suite_script(suite: str) -> tuple[str, ...]:
    """The first words of a command for a suite; in the clone, the suite's script."""
    return ("python", f"suites/{suite}.py") if in_clone() else (*program(), f"--suites={suite}")


def version() -> str:
    """The version of this program: of its checkout, or of the installed distribution."""
    project = SCRIPT.with_name("pyproject.toml")
    if SCRIPT.is_file() and project.is_file():
        found = re.search(r'^version = "(.+)"$', project.read_text(encoding="utf-8"), re.MULTILINE)
        if found is not None:
            return found[1]
    return version_of(INSTALLED[0]) or "of unknown number"


def _installed() -> bool:
    name = INSTALLED[0]
    return Path(sys.executable).with_name(name).is_file() or shutil.which(name) is not None
