"""For scripts and notebooks: ``compare(model, inputs, compilers=["inductor"])``.

The command line is ``runner.py``. Both use the same method and make the same records.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from torchduet.names import check_names

if TYPE_CHECKING:
    from harness.schema import CompilerOptions, Extras, Protocol
    from torchduet.api import compare
    from torchduet.frames import Frames, load
    from torchduet.result import Result

__all__ = ["CompilerOptions", "Extras", "Frames", "Protocol", "Result", "compare", "load"]


def __getattr__(name: str) -> Any:
    """Imports at first use. In the wheel, a worker imports this package, and it may have torch alone."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_names()  # before the imports that another module of the same name would break
    places = {"compare": "torchduet.api", "Result": "torchduet.result"}
    place = "torchduet.frames" if name in ("Frames", "load") else places.get(name, "harness.schema")
    return getattr(import_module(place), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
