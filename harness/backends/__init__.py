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
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from harness.program import Compiled, Program


def backend_names() -> tuple[str, ...]:
    """Names of the compilers that have a file here, sorted. Imports none of them."""
    return tuple(sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_")))


def load_backend(name: str) -> Callable[[Program], Compiled]:
    """The ``compile`` function of the backend called ``name``.

    A name without a file may be one that is registered with ``torch.compile``.
    ``LookupError`` if it is neither.
    """
    return cast("Callable[[Program], Compiled]", _module(name).compile)


def modes_of(name: str) -> tuple[str, ...]:
    """The modes that it compiles; () for all. ``LookupError`` as above."""
    return tuple(getattr(_module(name), "MODES", ()))


def why_unavailable(name: str, device_type: str) -> str | None:
    """The reason why it cannot be used here, or None when it can. ``LookupError`` as above."""
    why = getattr(_module(name), "why_unavailable", None)
    return None if why is None else cast("Callable[[str], str | None]", why)(device_type)


def describe(name: str) -> str:
    """The first line of its docstring. ``LookupError`` as above."""
    return (_module(name).__doc__ or name).strip().splitlines()[0]


def _module(name: str) -> Any:
    if name in backend_names():
        return importlib.import_module(f"{__name__}.{name}")
    # by name: the runner imports this module, and must not reach torch through it
    registered = importlib.import_module(f"{__name__}._registered")
    return registered.Registered.called(name)
