"""Lets model libraries be imported where torchvision's compiled operators cannot be loaded.

A torchvision wheel built for CUDA does not load beside a CPU build of torch.
torchvision hides that failure and then registers fake kernels for two
operators that were never defined, so importing it, and with it timm and most
of transformers, ends in ``operator torchvision::nms does not exist``.

Only torchvision knows where its operators are: the name of its extension has
changed between releases, and an operator that is defined before the extension
loads ends the process. So torchvision is imported first, and asked.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys

import torch

from harness.failures import first_line
from harness.hardware.installed import version_of

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")


def define_missing_ops() -> None:
    """Imports torchvision, and defines ``torchvision::nms`` and ``torchvision::qnms`` where it cannot.

    To be called before a model library is imported. Only the schemas: calling
    the operators still fails, and no model here does. Does nothing where
    torchvision is not installed, or where its own operators load.
    ``ImportError`` with one sentence where torchvision cannot be used at all.
    """
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return
    if _refusal() is None:
        return
    if _operators_missing():
        for operator in _OPERATORS:
            if not hasattr(torch.ops.torchvision, operator):
                _fragment().define(operator + _SCHEMA)  # type: ignore[no-untyped-call]
        _forget()
    refusal = _refusal()
    if refusal is not None:
        version = version_of("torchvision") or "of unknown version"
        raise ImportError(
            f"torchvision {version} does not work with torch {torch.__version__} "
            f"({first_line(refusal)}); install the torchvision that was released for this torch"
        ) from refusal


def _refusal() -> Exception | None:
    """What importing torchvision raises; None where it raises nothing."""
    try:
        importlib.import_module("torchvision")
    except Exception as error:  # a library's own code, which may raise anything
        return error
    return None


def _operators_missing() -> bool:
    """Whether torchvision's own loader, which is kept when the rest fails, says that it has no operators."""
    extension = sys.modules.get("torchvision.extension")
    has_ops = getattr(extension, "_has_ops", None)
    return has_ops is not None and not has_ops()


def _forget() -> None:
    """Lets torchvision be imported anew, all of it."""
    for name in [*sys.modules]:
        if name.partition(".")[0] == "torchvision":
            del sys.modules[name]


@functools.cache
def _fragment() -> torch.library.Library:
    """The one library object: its definitions go away with it, hence the cache."""
    return torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
