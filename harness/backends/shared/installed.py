"""Checks whether packages of other projects are installed."""

from __future__ import annotations

import importlib
from importlib.util import find_spec


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
