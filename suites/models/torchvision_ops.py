"""Lets model libraries be imported where torchvision's compiled operators cannot be loaded.

A torchvision wheel built for CUDA does not load beside a CPU build of torch.
torchvision hides that failure and then registers fake kernels for two
operators that were never defined, so importing it, and with it timm and most
of transformers, ends in ``operator torchvision::nms does not exist``.
"""

from __future__ import annotations

import functools
import importlib.util
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import torch

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")


def define_missing_ops() -> None:
    """Defines the schemas of ``torchvision::nms`` and ``torchvision::qnms``, if torchvision cannot.

    To be called before a model library is imported. Only the schemas: calling
    the operators still fails, and no model here does. Does nothing where
    torchvision is not installed, or where its own operators load.
    """
    package = importlib.util.find_spec("torchvision")
    if package is None or package.origin is None:
        return
    if _own_operators_load(Path(package.origin).parent):
        return
    for operator in _OPERATORS:
        if not hasattr(torch.ops.torchvision, operator):
            _fragment().define(operator + _SCHEMA)  # type: ignore[no-untyped-call]


def _own_operators_load(package: Path) -> bool:
    """Whether torchvision's extension registers its operators; loads it as torchvision would."""
    for suffix in EXTENSION_SUFFIXES:
        library = package / f"_C{suffix}"
        if library.is_file():
            try:
                torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
            except OSError:
                return False
            return True
    return False


@functools.cache
def _fragment() -> torch.library.Library:
    """The one library object: its definitions go away with it, hence the cache."""
    return torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
