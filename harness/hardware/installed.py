"""What is installed on this machine: packages and programs."""

from __future__ import annotations

import importlib
import os
import shutil
import sysconfig
from importlib.util import find_spec
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


def why_missing(install: str, *packages: str) -> str | None:
    """ "openvino is not installed (pip install openvino)" for the first package that is missing, or None."""
    for package in packages:
        try:
            here = find_spec(package) is not None
        except (ImportError, ValueError):  # the parent package is incomplete
            here = False
        if not here:
            return f"{package} is not installed (pip install {install})"
    return None


def why_broken(package: str) -> str | None:
    """Imports the package: a package for another torch may be installed and still fail."""
    try:
        importlib.import_module(package)
    except Exception as error:  # packages fail in any way while they are imported
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return f"{package} is installed, but cannot be imported with this torch: {reason[:200]}"
    return None
