"""``--compilers package.module:function`` or ``--compilers file.py:function``: a compiler of the user's own.

The function is one of two kinds. The number of its arguments decides:

    backend(graph, example_inputs) -> callable    as torch.compile(backend=...) takes it
    compiler(module) -> callable                  a replacement of the module

Arguments with a default do not count. If the arguments do not decide (``*args``), the function's attribute
``compiles`` does: ``"graph"`` or ``"module"``. This file only handles the names, for a parent without torch;
``harness.backends.shared.own_compiler`` calls the function.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

from harness.settings import is_own_model


def parts_of(source: str) -> tuple[str, str]:
    """``file.py:function`` -> (``file.py``, ``function``). ``LookupError`` for any other form."""
    if not is_own_model(source):
        raise LookupError(f"{source!r} is not written as package.module:function or file.py:function")
    module, _, function = source.rpartition(":")
    return module, function


def labels_of(sources: Sequence[str], taken: Iterable[str] = ()) -> Mapping[str, str]:
    """The unique name of each source in tables and file names, such as ``my_backend.function``.

    If two names are equal, or a name is in ``taken``, a digest of the source is added.
    """
    short = {source: _label(source) for source in dict.fromkeys(sources)}
    names = [*short.values(), *taken]
    return {
        source: label if names.count(label) == 1 else f"{label}-{digest(source)}"
        for source, label in short.items()
    }


def safe_label(text: str) -> str:
    """``text`` without characters that have a meaning in flags, candidates or file names."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip(".-") or "own"


def _label(source: str) -> str:
    module, function = parts_of(source)
    stem = re.split(r"[/\\]", module)[-1].removesuffix(".py") if module.endswith(".py") else module
    return safe_label(f"{stem.rpartition('.')[2]}.{function}")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
