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
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from harness.failures import first_line
from harness.hardware.installed import version_of

_PACKAGE = "torchvision"
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_OPERATORS = ("nms", "qnms")


def mend_torchvision() -> None:
    """From now on, importing torchvision defines ``torchvision::nms`` and ``torchvision::qnms`` if it cannot.

    Only the schemas: calling the operators still fails, and no model here does. The import raises
    ``ImportError`` with one sentence where torchvision cannot be used at all.
    """
    if _PACKAGE not in sys.modules and not any(isinstance(finder, _Mending) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Mending())


class _Mending(MetaPathFinder, Loader):
    """Acts once, when torchvision is first imported: until then, neither it nor torch is imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname != _PACKAGE:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None:
            spec.loader = self
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """The import system returns what ``sys.modules`` has under the name after this call."""
        sys.meta_path.remove(self)
        del sys.modules[module.__name__]
        _import_mended()


def _import_mended() -> None:
    if _refusal() is None:
        return
    torch = _torch()
    if _operators_missing():
        for operator in _OPERATORS:
            if not hasattr(torch.ops.torchvision, operator):
                _fragment().define(operator + _SCHEMA)
        for name in [*sys.modules]:  # all of torchvision is imported anew
            if name.partition(".")[0] == _PACKAGE:
                del sys.modules[name]
    refusal = _refusal()
    if refusal is not None:
        version = version_of(_PACKAGE) or "of unknown version"
        raise ImportError(
            f"torchvision {version} does not work with torch {torch.__version__} "
            f"({first_line(refusal)}); install the torchvision that was released for this torch"
        ) from refusal


def _torch() -> Any:
    return importlib.import_module("torch")  # the runner, which plans without torch, imports this file


def _refusal() -> Exception | None:
    """What importing torchvision raises; None where it raises nothing."""
    try:
        importlib.import_module(_PACKAGE)
    except Exception as error:  # a library's own code, which may raise anything
        return error
    return None


def _operators_missing() -> bool:
    """Whether torchvision's own loader, which is kept when the rest fails, says that it has no operators."""
    extension = sys.modules.get("torchvision.extension")
    has_ops = getattr(extension, "_has_ops", None)
    return has_ops is not None and not has_ops()


@functools.cache
def _fragment() -> Any:
    """The one library object: its definitions go away with it, hence the cache."""
    return _torch().library.Library(_PACKAGE, "FRAGMENT")
