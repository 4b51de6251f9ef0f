"""Image classification models of timm: the field's 61, a modern set, and any other by name.

``timm_models.toml`` beside this file holds the curated ones, with the batch
that each was published with and what is cut at ``--scale=small`` and ``tiny``.
The images are random pixels, because the cost of a step does not depend on the picture.

    python suites/timm_models.py --performance --inference -dcpu --float32 --inductor \
        --only lcnet_050 --batch-size 4 -n30
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

if __name__ == "__main__":  # here, because a script in suites/ cannot see what is imported next
    importlib.import_module("_direct").run(__file__)

from harness.schema import Case, Setting
from harness.workload import Workload
from suites.models.entries import Entry, entries_of

SMALL_BATCH = 2
"""Images in a step below full scale: two, because BatchNorm needs two values where a map is 1x1."""

REQUESTED_BATCH = 16
"""Images in a step at full scale, of a model that was asked for by name: nothing is published for it."""


entries = functools.partial(entries_of, __file__)


def cuts(entry: Entry, scale: str) -> dict[str, Any]:
    """The changes to the full model at ``scale``, except the batch. Tiny adds to the changes of small."""
    tables = {"full": (), "small": (entry.small,), "tiny": (entry.small, entry.tiny)}[scale]
    return {key: value for table in tables for key, value in table.items() if key != "batch"}


def batch_size(entry: Entry, scale: str) -> int:
    """Images in a step, never more than published."""
    if scale == "full":
        return entry.published_batch
    asked: int = (entry.small if scale == "small" else entry.tiny).get("batch", SMALL_BATCH)
    return min(asked, entry.published_batch)


def cases(setting: Setting) -> tuple[Case, ...]:
    """Every curated case; none in generation, which is for language models."""
    if setting.mode.value == "generate":
        return ()
    return tuple(case_for(name, setting) for name in entries())


def case_for(name: str, setting: Setting) -> Case:
    """The case of a listed name, or of one that ``find`` gave: nothing is published, only the batch is cut.

    ``LookupError`` for generation, which no model of timm does.
    """
    mode, listed = setting.mode.value, entries().get(name)
    if mode == "generate":
        raise LookupError(f"{name} cannot be run with --generate; use --training or --inference")
    entry = listed or Entry(published_batch=REQUESTED_BATCH)
    return Case(
        suite="timm_models",
        name=name,
        mode=setting.mode,
        batch_size=batch_size(entry, setting.scale),
        published_batch_size=listed.published_batch if listed else None,
        scale=setting.scale,
        tags=entry.tags,
        tolerance=entry.tolerance.get(mode),
        skip=entry.gone or entry.skip.get(mode, ""),
        parameters=entry.parameters_at(setting.scale),
    )


def find(pattern: str) -> tuple[str, ...]:
    """Architectures of the installed timm by name or glob, with or without a tag (resnet50.a1_in1k)."""
    from suites.models.timm_build import matching_names

    return matching_names(pattern)


def build(case: Case) -> Workload:
    """The model of ``case``, normalized random pixels, and the classes to predict."""
    import timm.data
    import torch

    from suites.models.timm_build import class_loss, make_model

    architecture, keywords, side = arguments(case)
    module = make_model(architecture, keywords, resolution=side, pretrained=case.pretrained)
    data: Any = timm.data  # it has no types
    channels, height, width = data.resolve_data_config({}, model=module)["input_size"]
    if side is not None:
        height = width = side
    images = torch.randn(case.batch, keywords.get("in_chans", channels), height, width)
    # the features of a model without a head
    classes: int = getattr(module, "num_classes", 0) or getattr(module, "num_features", 0) or 1000
    target = torch.randint(classes, (case.batch,))
    return Workload(module=module, args=(images,), target=target, loss=class_loss)


def arguments(case: Case) -> tuple[str, dict[str, Any], int | None]:
    """timm's name, the keywords of the constructor, and the side of the images; None: the model's own.

    ``LookupError`` for a name that timm no longer has.
    """
    from timm.models import get_deprecated_models

    from suites.models.timm_build import parse_config

    asked = parse_config(case.config)
    entry = entries().get(case.name)
    keywords: dict[str, Any] = {}
    architecture = get_deprecated_models().get(case.name) or case.name  # most became a tag of another
    if entry is not None:
        if entry.gone:
            raise LookupError(f"{case.name}: {entry.gone}")
        architecture = entry.architecture or case.name
        # published weights fit the whole model only: with them, nothing but the batch is cut
        keywords = {**entry.config, **({} if case.pretrained else cuts(entry, case.scale))}
    if "img_size" in asked:  # timm's word for it, which only some families know
        asked["resolution"] = asked.pop("img_size")
    keywords.update(asked)
    side = keywords.pop("resolution", None)
    if side is not None and (not isinstance(side, int) or side < 1):
        raise LookupError(f"the images are square: {side!r} is not the length of a side")
    return architecture, keywords, side


def warm(_: str) -> None:
    """Imports what ``build`` imports, for a host that forks workers."""
    import timm  # noqa: F401
