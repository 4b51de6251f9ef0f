"""The words that start the program in the current folder, for printed commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from harness.hardware.installed import version_of
from harness.schema import Scalar

SCRIPT = Path(__file__).resolve().parents[2] / "runner.py"
INSTALLED = "torchduet"
GIT_S = 10.0  # a checkout on a slow disk
WORKER = "harness.worker"  # for python -m; in the wheel, setup.py makes it torchduet.harness.worker


def in_clone() -> bool:
    """Whether the current folder is the clone that this program runs from."""
    here = Path.cwd() / "runner.py"
    return SCRIPT.is_file() and here.is_file() and here.samefile(SCRIPT)


def program() -> tuple[str, ...]:
    """``python runner.py`` in the clone; elsewhere ``torchduet`` or, where it is not installed, by path."""
    if in_clone():
        return ("python", "runner.py")
    if SCRIPT.is_file() and not _installed():
        return ("python", str(SCRIPT))
    return (INSTALLED,)


def suite_script(suite: str) -> tuple[str, ...]:
    """The first words of a command for a suite; in the clone, the suite's script."""
    return ("python", f"suites/{suite}.py") if in_clone() else (*program(), f"--suites={suite}")


def version(unknown: str = "of unknown number") -> str:
    """The version of this program: of its checkout, or of the installed distribution."""
    project = SCRIPT.with_name("pyproject.toml")
    text = project.read_text(encoding="utf-8") if SCRIPT.is_file() and project.is_file() else ""
    line = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    return line[1] if line is not None else version_of(INSTALLED) or unknown


@cache
def program_facts() -> Mapping[str, Scalar]:
    """What measured, for records: the version and, of a checkout, the commit."""
    facts = {"torchduet_version": version(""), "torchduet_commit": commit_of(SCRIPT.parent)}
    return MappingProxyType({name: value for name, value in facts.items() if value})


def commit_of(checkout: Path) -> str:
    """The commit of a checkout, with ``+dirty`` if files differ; "" for what is not, or cannot be asked."""
    if not (checkout / ".git").exists():
        return ""
    words = ("describe", "--always", "--dirty=+dirty", "--abbrev=12", "--exclude=*")
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        git = subprocess.run(
            ["git", "-C", str(checkout), "--no-optional-locks", *words],  # noqa: S607
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=own,
            timeout=GIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return git.stdout.strip()


def _installed() -> bool:
    return Path(sys.executable).with_name(INSTALLED).is_file() or shutil.which(INSTALLED) is not None
