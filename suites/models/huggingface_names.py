"""The model classes of the installed transformers, by name. Listing them imports none of them."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterable
from typing import Any

from suites.models.words import closest

_MODELING = re.compile(r"\.modeling_(?!tf_|flax_)")
"""Models of torch live in such modules; older versions have ones of other frameworks beside them."""

_NO_MODEL = re.compile(r"^Auto|^MODEL_|PreTrainedModel$|Mixin$|Output$|Cache$|Layer$|RMSNorm$")
"""What those modules offer besides models."""


@functools.cache
def model_class_names() -> tuple[str, ...]:
    """Every class that is a model by its module and name, sorted."""
    library = importlib.import_module("transformers")
    where: dict[str, str] = library._class_to_module  # noqa: SLF001 -- dir() cannot tell models apart
    if not any(_MODELING.search(module) for module in where.values()):
        where = _by_packages(where.values())
    return tuple(
        sorted(
            name for name, module in where.items() if _MODELING.search(module) and not _NO_MODEL.search(name)
        )
    )


def _by_packages(modules: Iterable[str]) -> dict[str, str]:
    """The same of older versions (4.41): they list a model's package, and the package lists its modules."""
    where: dict[str, str] = {}
    for module in sorted({module for module in modules if module.startswith("models.")}):
        package = importlib.import_module(f"transformers.{module}")
        inside: dict[str, str] = getattr(package, "_class_to_module", {})
        where.update({name: f"{module}.{file}" for name, file in inside.items()})
    return where


def model_class(name: str) -> Any:
    """The class itself. ``LookupError`` says in one sentence why the name is no model that can be built."""
    library = importlib.import_module("transformers")
    if name not in model_class_names():
        close = closest(name, model_class_names())
        if name in dir(library):
            raise LookupError(f"{name} of transformers {library.__version__} is no model{close}")
        raise LookupError(f"transformers {library.__version__} has no model class {name!r}{close}")
    model_class: Any = getattr(library, name)
    if not (isinstance(model_class, type) and issubclass(model_class, library.PreTrainedModel)):
        raise LookupError(f"{name} of transformers {library.__version__} is no model")  # noqa: TRY004 -- the name is wrong
    if getattr(model_class, "config_class", None) is None:
        raise LookupError(f"{name} of transformers {library.__version__} has no configuration to build from")
    return model_class
