"""The models of an installed checkout of pytorch/benchmark (TorchBench).

The checkout is the folder of ``--torchbench DIR``, or what ``import torchbenchmark`` finds. Models are listed
from its folders and batch sizes are read from its source, so a list takes no import. ``torchbench.toml``
beside this file has what PyTorch's harness knows about them: skips with their reasons, batch sizes.
torchvision's models get random weights; other models may want a network, or packages of their own, which
``python install.py`` of the checkout installs.

    python suites/torchbench.py --torchbench ../benchmark --training --inductor --only phlippe_resnet
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.schema import Case, Setting
    from harness.workload import Workload

MODELS = Path("torchbenchmark", "models")
SMALL_BATCH, TINY_BATCH = 4, 2  # at these scales only the batch is reduced, never the model
NO_CHECKOUT = "needs a checkout of github.com/pytorch/benchmark; give --torchbench DIR, or install it"


@functools.cache
def facts() -> Mapping[str, Mapping[str, Any]]:
    """What ``torchbench.toml`` says."""
    from harness.loading.toml_file import (
        read_toml,  # not above: as a script, this file cannot see harness/ at first
    )

    return read_toml(Path(__file__).with_suffix(".toml"))


def checkout(folder: str) -> Path:
    """The root of the checkout. ``LookupError`` if there is none."""
    if folder:
        return Path(folder)
    found = importlib.util.find_spec("torchbenchmark")
    if found is None or not found.submodule_search_locations:
        raise LookupError(f"torchbench {NO_CHECKOUT}")
    return Path(next(iter(found.submodule_search_locations))).parent


def cases(setting: Setting) -> tuple[Case, ...]:
    """Every model of the checkout, sorted; none in generation."""
    from harness.schema import PUBLISHED_MODEL, Case

    mode = setting.mode.value
    if mode == "generate":
        return ()
    found = []
    for path in sorted((checkout(setting.folder) / MODELS).glob("*/__init__.py")):
        name, source = path.parent.name, path.read_text(encoding="utf-8", errors="replace")
        published = published_batch(name, mode, source)
        found.append(
            Case(
                suite="torchbench",
                name=name,
                mode=setting.mode,
                batch_size=_batch(name, published, setting.scale, source),
                published_batch_size=published,
                scale=setting.scale,
                tags=(PUBLISHED_MODEL,),
                skip=_skip(name, mode, setting.device_type),
                folder=setting.folder,
            )
        )
    return tuple(found)


def published_batch(name: str, mode: str, source: str) -> int | None:
    """The batch size of PyTorch's harness or of the model's class; None if only its code knows it."""
    if name in facts()[f"batch_{mode}"]:
        return int(facts()[f"batch_{mode}"][name])
    word = "TRAIN" if mode == "training" else "EVAL"
    stated = re.search(
        rf"^\s+DEFAULT_{word}_BSIZE(?:\s*:[^=\n]*)?\s*=\s*(\d+)\s*(?:#.*)?$", source, re.MULTILINE
    )
    return int(stated[1]) if stated else None


def _batch(name: str, published: int | None, scale: str, source: str) -> int | None:
    """The batch size at this scale; None for the model's own."""
    fixed = name in facts()["own_batch"] or re.search(r"ALLOW_CUSTOMIZE_BSIZE\s*=\s*False", source)
    if fixed or published is None:
        return None
    return {"full": published, "small": min(published, SMALL_BATCH), "tiny": min(published, TINY_BATCH)}[
        scale
    ]


def _skip(name: str, mode: str, device_type: str) -> str:
    reasons = [facts()["skip"]]
    reasons += [facts()["skip_training"]] if mode == "training" else []
    reasons += [facts()["skip_cpu"]] if device_type == "cpu" else []
    return str(next((table[name] for table in reasons if name in table), ""))


def build(case: Case) -> Workload:
    """The model with its own example inputs. ``LookupError`` names a package that is not installed."""
    from harness.loading.losses import mean_of_output
    from harness.workload import Workload
    from suites.models.torchvision_ops import define_missing_ops

    define_missing_ops()  # before torchvision, which many models import
    if case.config:
        raise LookupError("--model-config: the models of torchbench have no configuration to change")
    root = str(checkout(case.folder))
    if root not in sys.path:
        sys.path.append(root)
    with _own_seeding():
        model_class = _model_class(case.name)
        with _random_weights(keep=case.pretrained):
            made = model_class(
                test="train" if case.mode.value == "training" else "eval",
                device="cpu",
                batch_size=case.batch_size,
                extra_args=[],
            )
        module, inputs = made.get_module()
    if isinstance(inputs, Mapping):
        return Workload(module=module, kwargs=dict(inputs), loss=mean_of_output)
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    return Workload(module=module, args=args, loss=mean_of_output)


def _model_class(name: str) -> Any:
    place = f"torchbenchmark.models.{name}"
    try:
        model_class = getattr(importlib.import_module(place), "Model", None)
    except ModuleNotFoundError as error:
        if error.name in (place, "torchbenchmark.models"):
            raise LookupError(f"the checkout has no model {name!r}") from None
        package = (error.name or str(error)).partition(".")[0]
        raise LookupError(
            f"{name} needs the package {package}, which is not installed; "
            "the model's install.py in the checkout installs what it needs"
        ) from error
    if model_class is None:
        raise LookupError(f"{place} has no class Model")
    return model_class


@contextmanager
def _own_seeding() -> Iterator[None]:
    """torchbenchmark replaces ``torch.manual_seed`` by a function that ignores its argument."""
    import torch

    before = torch.manual_seed
    try:
        yield
    finally:
        torch.manual_seed = before


@contextmanager
def _random_weights(*, keep: bool) -> Iterator[None]:
    """torchvision's models without their published weights, which would need a network."""
    factory = sys.modules.get("torchbenchmark.util.framework.vision.model_factory")
    if keep or factory is None:
        yield
        return
    published = factory.models

    class Untrained:
        def __getattr__(self, name: str) -> Any:
            return lambda **_: getattr(published, name)(weights=None)

    factory.models = Untrained()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        factory.models = published  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the repository instead of suites/
    from suites._direct import run

    run(__file__, sys.argv[1:])
