"""The top-level names of this program beside the user's own modules. Imports nothing of this program.

The wheel installs the packages ``torchduet``, ``runner``, ``harness``, ``suites`` and ``studies``. A script
or a notebook may lie beside a ``runner.py`` or ``harness/`` of its own, which Python then finds first.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("harness", "runner")


def check_names() -> None:
    """``ImportError`` with one sentence if another module has the name of one of our packages."""
    for name in NAMES:
        try:
            spec = importlib.util.find_spec(name)
        except ValueError:  # a module that was made by hand
            spec = None
        places = [spec.origin] if spec is not None and spec.origin else []
        if places and Path(places[0]).resolve().parent.parent != ROOT:
            raise ImportError(
                f"torchduet needs its own package {name!r}, but Python finds {places[0]} first; rename that "
                "module, or start Python in another folder"
            )
