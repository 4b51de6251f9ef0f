"""Compilers, one module each, found by file name.

A module offers

    compile(program: Program) -> Compiled     may raise whatever its compiler raises

and, where that is not "everywhere, for every step",

    why_unavailable(device_type: str) -> str | None    a reason such as "openvino is not installed"
    MODES: tuple[str, ...]                              the modes that it can compile ("inference",)

``program.options`` are the person's options. Configuration is patched in a
context, never assigned. The module's docstring begins with the line that
``--list-compilers`` shows. Modules are imported only in a worker's interpreter.
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
