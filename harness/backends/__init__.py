"""Compilers, one module each, found by file name.

A module offers ``compile(program: Program) -> Compiled`` and may raise
whatever its compiler raises. Configuration is patched in a context, never
assigned. The module is imported only in the worker that uses it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from harness.program import Compiled, Program


def backend_names() -> tuple[str, ...]:
    """Names of the compilers that have a file here, sorted. Imports none of them."""
    return tuple(sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_")))


def load_backend(name: str) -> Callable[[Program], Compiled]:
    """The ``compile`` function of the backend called ``name``; ``LookupError`` if there is none."""
    if name not in backend_names():
        raise LookupError(f"there is no compiler called {name!r}")
    module = importlib.import_module(f"{__name__}.{name}")
    return cast("Callable[[Program], Compiled]", module.compile)
