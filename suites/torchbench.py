"""The models of an installed checkout of pytorch/benchmark (TorchBench).

The checkout is what ``import torchbenchmark`` finds: in ``PYTHONPATH``, or installed. Models are listed
from its folders and batch sizes are read from its source, so a list takes no import. ``torchbench.toml``
beside this file has what PyTorch's harness knows about them: skips with their reasons, batch sizes.
torchvision's models get random weights. Many models need packages or files that ``python install.py NAME``
of the checkout installs or downloads; without them, a record names the first that is missing.

    PYTHONPATH=../benchmark python suites/torchbench.py --training --inductor --only phlippe_resnet
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # here, because a script in suites/ cannot see what is imported next
    importlib.import_module("_direct").run(__file__)

from harness.loading.toml_file import read_toml
from harness.schema import PUBLISHED_MODEL, Case, Setting
from harness.workload import Workload

MODELS = Path("torchbenchmark", "models")
SMALL_BATCH, TINY_BATCH = 4, 2  # at these scales only the batch is reduced, never the model
NO_CHECKOUT = "needs a checkout of github.com/pytorch/benchmark; name it in PYTHONPATH, or install it"


@functools.cache
def facts() -> Mapping[str, Mapping[str, Any]]:
    """What ``torchbench.toml`` says."""
    return read_toml(Path(__file__).with_suffix(".toml"))


def checkout() -> Path:
    """The root of the checkout. ``LookupError`` if there is none."""
    package = importlib.util.find_spec("torchbenchmark")
    if package is None or not package.submodule_search_locations:
        raise LookupError(f"torchbench {NO_CHECKOUT}")
    return Path(next(iter(package.submodule_search_locations))).parent


def cases(setting: Setting) -> tuple[Case, ...]:
    """Every model of the checkout, sorted; none in generation."""
    mode = setting.mode.value
    if mode == "generate":
        return ()
    files = sorted((checkout() / MODELS).glob("*/__init__.py"))
    return tuple(_case(file, mode, setting) for file in files)


def _case(file: Path, mode: str, setting: Setting) -> Case:
    name, source = file.parent.name, file.read_text(encoding="utf-8", errors="replace")
    published = published_batch(name, mode, source)
    tables = ("skip", f"skip_{mode}", f"skip_{setting.device_type}")
    rows = (row for table in tables for row in facts().get(table, {}).items())
    return Case(
        suite="torchbench",
        name=name,
        mode=setting.mode,
        batch_size=_batch(name, mode, published, setting.scale, source),
        published_batch_size=published,
        scale=setting.scale,
        tags=(PUBLISHED_MODEL,),
        skip=next((reason for reason, names in rows if name in names), ""),
    )


def published_batch(name: str, mode: str, source: str) -> int | None:
    """The batch size of PyTorch's harness or of the model's class; None if only its code knows it."""
    if name in facts()[f"batch_{mode}"]:
        return int(facts()[f"batch_{mode}"][name])
    word = "TRAIN" if mode == "training" else "EVAL"
    stated = re.search(
        rf"^\s+DEFAULT_{word}_BSIZE(?:\s*:[^=\n]*)?\s*=\s*(\d+)\s*(?:#.*)?$", source, re.MULTILINE
    )
    return int(stated[1]) if stated else None


def _batch(name: str, mode: str, published: int | None, scale: str, source: str) -> int | None:
    """The batch size at this scale; None for the model's own."""
    if name in facts()["own_batch"] or re.search(r"ALLOW_CUSTOMIZE_BSIZE\s*=\s*False", source):
        stated: int | None = facts()[f"batch_{mode}"].get(name)  # PyTorch's harness has one for demucs
        return stated
    most = {"small": SMALL_BATCH, "tiny": TINY_BATCH}.get(scale)
    return min(published, most) if published and most else published


def build(case: Case) -> Workload:
    """The model with its own example inputs. ``LookupError`` names what it lacks: a package, a file."""
    from harness.loading.losses import mean_of_output
    from harness.loading.own_model_build import workload_of
    from suites.models.torchbench_build import WithGradients, make_model

    if case.config:
        raise LookupError("--model-config: the models of torchbench have no configuration to change")
    training = case.mode.value == "training"
    module, inputs = make_model(
        case.name,
        checkout().resolve(),
        training=training,
        batch_size=case.batch_size,
        keywords=facts()["keywords_training"].get(case.name, {}) if training else {},
        image=tuple(facts()["image_inputs"].get(case.name, ())),
        pretrained=case.pretrained,
    )
    if not training and case.name in facts()["needs_gradients"]:
        module = WithGradients(module)
    return workload_of(module, inputs, mean_of_output)
