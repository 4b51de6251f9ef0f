"""Whether other projects' packages are here."""

from __future__ import annotations

from importlib.util import find_spec


def why_missing(install: str, *packages: str) -> str | None:
    """ "openvino is not installed (pip install openvino)" for the first package that is missing, or None."""
    for package in packages:
        try:
            here = find_spec(package) is not None
        except (ImportError, ValueError):  # of a parent package that is itself half there
            here = False
        if not here:
            return f"{package} is not installed (pip install {install})"
    return None
