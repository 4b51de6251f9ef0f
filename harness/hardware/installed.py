"""What is installed on this machine."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path


def version_of(package: str) -> str | None:
    """The installed version from the package's metadata, without importing it; None if there is none."""
    from importlib import metadata  # slow: it imports the parser of mails, and --help needs none

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def any_program(*commands: str) -> bool:
    """Whether one of these programs is there; "" is none."""
    return any(command and shutil.which(command.split()[0]) for command in commands)


def missing_for_triton() -> str:
    """What Triton lacks to build its launcher, which is a C extension of Python; "" if it lacks nothing."""
    if not any_program(os.environ.get("CC", ""), "gcc", "clang"):
        return "a C compiler (apt install gcc, or one named by CC)"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return "" if header.exists() else f"{header} (apt install python3-dev)"
