"""For scripts and notebooks: ``compare(model, inputs, compilers=["inductor"])``.

The command line is ``runner.py``. Both use the same method and make the same records.
"""

import importlib.util
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.schema import CompilerOptions, Extras, Protocol
    from torchduet.api import compare
    from torchduet.frames import Frames, load
    from torchduet.result import Result

__all__ = ["CompilerOptions", "Extras", "Frames", "Protocol", "Result", "compare", "load"]

ROOT = Path(__file__).resolve().parents[1]
OURS = ("harness", "runner")
"""In a checkout these packages lie beside ``torchduet``, where a user's folder may hide them; in the wheel,
they are inside of it."""


def __getattr__(name: str) -> Any:
    """Imports at first use. In the wheel, a worker imports this package, and it may have torch alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_names()  # before the imports that another module of the same name would break
    places = {"compare": "torchduet.api", "Result": "torchduet.result"}
    place = "torchduet.frames" if name in ("Frames", "load") else places.get(name, "harness.schema")
    with import_module("torchduet.caller").python_left_as_it_was():
        return getattr(import_module(place), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def check_names() -> None:
    """``ImportError`` with one sentence if another module has the name of one of our packages."""
    for name in OURS if (ROOT / OURS[0]).is_dir() else ():
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
