"""Builds one model of a checkout of pytorch/benchmark, and says in one sentence what a model lacks."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from harness.failures import first_line, with_causes
from harness.hardware.installed import version_of

OFFLINE = frozenset(
    (
        *("URLError", "gaierror", "ConnectionError", "ConnectError", "ConnectTimeout", "MaxRetryError"),
        *("OfflineModeIsEnabled", "LocalEntryNotFoundError"),
    )
)
"""Exceptions of the standard library, requests, httpx, urllib3 and huggingface_hub without a network."""

INSTALLER = "torchbenchmark.util.framework.fb"
"""A package that no checkout has: the models import it where a file of theirs has not been downloaded."""


class WithGradients(nn.Module):
    """Calls a model whose forward computes gradients, which an inference step turns off."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch.enable_grad():
            return self.inner(*args, **kwargs)


def make_model(
    name: str,
    root: Path,
    *,
    training: bool,
    batch_size: int | None,
    keywords: Mapping[str, Any],
    image: tuple[int, ...] = (),
    pretrained: bool = False,
) -> tuple[nn.Module, Any]:
    """The model with its own example inputs. ``LookupError`` says what the environment or checkout lacks.

    ``keywords`` are more arguments of the model's class. ``image``: the inputs are random images of this
    shape instead.
    """
    if str(root) not in sys.path:
        sys.path.append(str(root))
    try:
        with _own_settings(root):
            model_class = _model_class(name)
            with _random_weights(keep=pretrained):
                model = model_class(
                    test="train" if training else "eval",
                    device="cpu",
                    batch_size=batch_size,
                    extra_args=[],
                    **keywords,
                )
            module, inputs = model.get_module()
            if image:
                inputs = (torch.rand(model.batch_size, *image),)
            return module, inputs
    except Exception as error:
        why = why_not_built(error, root)
        if not why:
            raise
        raise LookupError(f"{name} {why}")  # noqa: B904 - the log has both; a record would repeat the cause


def _model_class(name: str) -> Any:
    place = f"torchbenchmark.models.{name}"
    try:
        model_class = getattr(importlib.import_module(place), "Model", None)
    except ModuleNotFoundError as error:
        if error.name in (place, "torchbenchmark.models"):
            raise LookupError(f"the checkout has no model {name!r}") from None
        raise
    if model_class is None:
        raise LookupError(f"{place} has no class Model")
    return model_class


@contextmanager
def _own_settings(root: Path) -> Iterator[None]:
    """Undoes what the models' code sets for the whole process; the working folder is the checkout meanwhile.

    torchbenchmark replaces ``torch.manual_seed`` by a function that ignores its argument. A default device,
    which llama sets, adds time to every call of torch. pytorch_stargan makes folders where it is run.
    """
    seed, dtype, folder = torch.manual_seed, torch.get_default_dtype(), Path.cwd()
    os.chdir(root)
    try:
        yield
    finally:
        os.chdir(folder)
        torch.manual_seed = seed
        torch.set_default_dtype(dtype)
        torch.set_default_device(None)


@contextmanager
def _random_weights(*, keep: bool) -> Iterator[None]:
    """torchvision's models without their published weights, which would need a network.

    Not those of detection: without weights, they have other layers (BatchNorm that is not frozen).
    """
    if keep or importlib.util.find_spec("torchvision") is None:
        yield
        return
    kinds: Any = importlib.import_module("torchvision.models._api").WeightsEnum
    published = kinds.__dict__["verify"]

    def verify(kind: Any, weights: Any) -> Any:
        return published.__func__(kind, weights) if ".detection." in kind.__module__ else None

    with patch.object(kinds, "verify", classmethod(verify)):
        yield


def why_not_built(error: BaseException, root: Path) -> str:
    """What the environment or the checkout lacks: "needs ..."; "" if the exception means something else."""
    for link in with_causes(error, contexts=True):
        if isinstance(link, ImportError) and link.name:
            return _why_not_imported(link, link.name)
        if isinstance(link, FileNotFoundError) and root in Path(str(link.filename)).parents:
            missing = Path(str(link.filename)).relative_to(root)
            return f"needs the file {missing} of the checkout, which the model's install.py downloads"
        if any(kind.__name__ in OFFLINE for kind in type(link).__mro__):
            return f"needs the network, for files that are not on this machine: {first_line(link)}"
        if isinstance(link, AssertionError) and "install.py" in str(link):
            return "needs data files, which the model's install.py in the checkout downloads"
    return ""


def _why_not_imported(error: ImportError, module: str) -> str:
    package = module.partition(".")[0]
    if module.startswith(INSTALLER):
        return "needs data files, which the model's install.py in the checkout downloads"
    if package == "torchbenchmark":
        return f"needs {module}, which the checkout does not have"
    if importlib.util.find_spec(package) is None:
        return (
            f"needs the package {package}, which is not installed; the model's install.py in the checkout "
            "installs what it needs"
        )
    installed = f"the installed {package} {version_of(package) or 'of unknown version'}"
    if isinstance(error, ModuleNotFoundError):
        return f"needs the module {module}, which {installed} does not have"
    return f"does not work with {installed}: {first_line(error).partition(' (')[0]}"
