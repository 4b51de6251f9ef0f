"""The models of suite timm_models: that timm builds them all, and that nothing in them is left to chance."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from harness.schema import Case, Mode, Setting
from suites import timm_models
from tests.factories import Patch, known
from tests.worker.planted import trainable

if TYPE_CHECKING:
    from harness.workload import Workload

NAMES = list(timm_models.entries())
RUN = ["lcnet_050", "levit_128", "beit_base_patch16_224", "mobilenetv4_conv_small"]


def case(name: str, scale: str = "tiny", **changes: Any) -> Case:
    setting = Setting(mode=Mode.TRAINING, device_type="cpu", scale=scale)
    return dataclasses.replace(timm_models.case_for(name, setting), **changes)


def built(name: str, scale: str = "tiny", *, seed: int = 0, **changes: Any) -> Workload:
    torch.manual_seed(seed)
    return timm_models.build(case(name, scale, **changes))


def on_meta(name: str, scale: str = "full", **changes: Any) -> Workload:
    """Without memory or arithmetic."""
    with torch.device("meta"):
        return timm_models.build(case(name, scale, **changes))


def loss_of(given: Workload, module: nn.Module) -> Tensor:
    return known(given.loss)(module(*given.args), given.target)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.series
def test_every_case_builds_whole_and_small(name: str) -> None:
    entry = timm_models.entries()[name]
    full, small = on_meta(name), on_meta(name, "small")
    assert trainable(full.module) == case(name, "full").parameters
    side = entry.resolution
    assert full.args[0].shape == (entry.published_batch, 3, side, side)
    assert trainable(small.module) == known(case(name, "small").parameters) <= entry.parameters
    side = entry.small.get("resolution", side)
    assert small.args[0].shape == (timm_models.batch_size(entry, "small"), 3, side, side)


@pytest.mark.parametrize("name", RUN)
def test_a_training_step_runs_and_is_the_same_on_a_copy(name: str) -> None:
    given = built(name)
    assert given.target.dtype == torch.int64
    losses = []
    for module in (given.module.train(), copy.deepcopy(given.module).train()):
        loss = loss_of(given, module)
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
        for label, parameter in module.named_parameters():
            assert parameter.grad is not None, label
            assert torch.isfinite(parameter.grad).all(), label
    assert losses[0] == losses[1]
    assert losses[0] == pytest.approx(math.log(1000), rel=0.3)  # untrained: that of guessing


ASKED = {"config": ("drop_rate=0.5", "drop_path_rate=0.5", "resolution=64")}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("lcnet_050", ASKED),  # a function's dropout
        ("vit_tiny_patch16_224", ASKED),  # modules' own
        ("swin_base_patch4_window7_224", {}),  # it drops paths by default, as the next one does
        pytest.param("jx_nest_base", {}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.series
def test_dropout_runs_and_drops_nothing(name: str, asked: dict[str, Any]) -> None:
    given = built(name, **asked)
    module = given.module.train()
    assert not asked or getattr(module, "drop_rate", 1e-30) == 1e-30
    losses = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        losses.append(loss_of(given, module).item())
    assert losses[0] == losses[1]


def test_config_reaches_the_constructor() -> None:
    whole = on_meta("vit_tiny_patch16_224")
    given = on_meta(
        "vit_tiny_patch16_224", config=("depth=2", "in_chans=1", "num_classes=9", "qkv_bias=false")
    )
    assert trainable(given.module) < trainable(whole.module)
    assert given.args[0].shape == (16, 1, 224, 224)
    assert given.module(*given.args).shape == (16, 9)
    assert "blocks.0.attn.qkv.bias" not in dict(given.module.named_parameters())


@pytest.mark.parametrize("key", ["resolution", "img_size"])
@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])
def test_the_side_of_the_images_can_be_set(name: str, key: str) -> None:
    given = on_meta(name, config=(f"{key}=64",))
    assert given.args[0].shape[2:] == (64, 64)
    assert given.module(*given.args).shape == (16, 1000)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("depht=2", "vit_tiny_patch16_224 takes no 'depht'; the closest: depth"),
        ("zzzz=1", "vit_tiny_patch16_224 takes no 'zzzz'$"),
        ("depth", "'depth' is not of the form key=value"),
        ("resolution=big", "'big' is not the length of a side"),
    ],
)
def test_a_config_that_fits_nothing_is_explained(config: str, said: str) -> None:
    with pytest.raises(LookupError, match=said):
        on_meta("vit_tiny_patch16_224", config=(config,))


def test_find_knows_names_tags_and_globs() -> None:
    assert timm_models.find("resnet18") == ("resnet18",)
    assert timm_models.find("resnet50.a1_in1k") == ("resnet50.a1_in1k",)
    assert timm_models.find("jx_nest_base") == ("jx_nest_base",)
    names = timm_models.find("lcnet_0??")
    assert "lcnet_050" in names
    assert all(name.startswith("lcnet_0") for name in names)
    assert "resnet18.a1_in1k" in timm_models.find("resnet18.*")
    assert len(timm_models.find("*")) > 1000


def test_weights_that_a_model_does_not_have_are_named_with_those_that_it_has() -> None:
    with pytest.raises(LookupError, match=r"^timm has no weights 'resnet18.none'; it has: .*") as refused:
        timm_models.find("resnet18.none")
    tags = str(refused.value).partition("it has: ")[2].split(", ")
    assert "resnet18.a1_in1k" in tags
    assert all(tag.startswith("resnet18.") for tag in tags)


@pytest.mark.slow
def test_a_model_with_neither_table_nor_head_is_built() -> None:
    given = on_meta("vit_tiny_patch16_224.augreg_in21k_ft_in1k", "small")
    assert given.args[0].shape == (2, 3, 224, 224)
    headless = on_meta("eva02_tiny_patch14_224", "small")
    assert headless.module(*headless.args).shape == (2, 192)


def test_published_weights_need_a_network_and_the_whole_model(monkeypatch: Patch) -> None:
    import timm

    asked: dict[str, Any] = {}

    def offline(architecture: str, **keywords: Any) -> nn.Module:
        asked.update(keywords, architecture=architecture)
        raise OSError("cannot reach\nthe server")

    monkeypatch.setattr(timm, "create_model", offline)
    said = r"^--pretrained: cannot load the weights of beit_base_patch16_224 \(no network\?\): cannot reach"
    with pytest.raises(RuntimeError, match=said):
        on_meta("beit_base_patch16_224", "small", pretrained=True)
    assert asked["pretrained"] is True
    assert "depth" not in asked
