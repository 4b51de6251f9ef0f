"""The packages of a checkout beside the user's own modules. Imports nothing of this program.

In a checkout, also in one that is installed with ``pip install -e``, the packages ``runner``, ``harness`` and
``suites`` lie beside ``torchduet``. A script or a notebook may lie beside a ``runner.py`` or ``harness/`` of
its own, which Python then finds first. The wheel has them inside ``torchduet``, where nothing hides them.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("harness", "runner")


def check_names() -> None:
    """``ImportError`` with one sentence if another module has the name of one of our packages."""
    for name in NAMES if (ROOT / NAMES[0]).is_dir() else ():
        try:
            spec = importlib.util.find_spec(name)
        except ValueError:  # a module that was made by hand
            spec = None
        places = [spec.origin] if spec is not None and spec.origin else []
        if places and Path(places[0]).resolve().parent.parent != ROOT:
            raise ImportError(
                f"torchduet needs its own package {name!r}, but Python finds {places[0]} first; rename that "
                "module, start Python in another folder, or install torchduet from its wheel (pip install .)"
            )
