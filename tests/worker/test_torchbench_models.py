"""Suite torchbench builds the models of a made-up checkout, and says what a model lacks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.schema import Case, Mode
from suites import torchbench
from tests.suites.checkout import made_up


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The checkout; afterwards Python has forgotten it."""
    before = list(sys.path)
    yield made_up(tmp_path)
    sys.path[:] = before
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchbenchmark"]:
        del sys.modules[name]


def case(folder: Path, name: str, mode: Mode = Mode.TRAINING, batch_size: int | None = 4) -> Case:
    return Case(
        suite="torchbench",
        name=name,
        mode=mode,
        batch_size=batch_size,
        published_batch_size=64,
        folder=str(folder),
    )


def test_a_model_is_built_with_its_inputs_at_the_batch_that_was_asked_for(folder: Path) -> None:
    made = torchbench.build(case(folder, "linear"))
    (inputs,) = made.args
    assert inputs.shape == (4, 8)
    assert made.loss is not None
    assert made.loss(made.module(inputs), None).requires_grad


@pytest.mark.parametrize(("mode", "size"), [(Mode.TRAINING, 64), (Mode.INFERENCE, 128)])
def test_without_a_batch_size_the_model_takes_its_own(folder: Path, mode: Mode, size: int) -> None:
    made = torchbench.build(case(folder, "own_size", mode, batch_size=None))
    assert made.args[0].shape == (size, 8)


def test_named_inputs_are_passed_by_name(folder: Path) -> None:
    made = torchbench.build(case(folder, "named_inputs"))
    assert made.module(*made.args, **made.kwargs).shape == (4, 4)


def test_their_seeding_does_not_stay(folder: Path) -> None:
    before = torch.manual_seed
    torchbench.build(case(folder, "linear"))
    assert torch.manual_seed is before


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("needs_a_package", "needs_a_package needs the package some_missing_package, which is not installed"),
        ("without_a_model", "torchbenchmark.models.without_a_model has no class Model"),
        ("nothing", "the checkout has no model 'nothing'"),
    ],
)
def test_what_a_model_lacks_is_named(folder: Path, name: str, says: str) -> None:
    with pytest.raises(LookupError, match=says):
        torchbench.build(case(folder, name))


def test_a_missing_network_is_the_models_own_error(folder: Path) -> None:
    with pytest.raises(OSError, match="Name or service not known"):
        torchbench.build(case(folder, "needs_the_network"))


def test_torchvisions_models_are_built_without_published_weights(folder: Path) -> None:
    factory = folder / "torchbenchmark" / "util" / "framework" / "vision" / "model_factory.py"
    factory.parent.mkdir(parents=True)
    factory.write_text(
        "from torch import nn\n\n\nclass models:\n    @staticmethod\n    def net(weights='published'):\n"
        "        if weights: raise OSError('a download')\n        return nn.Linear(8, 4)\n"
    )
    model = folder / "torchbenchmark" / "models" / "vision" / "__init__.py"
    model.parent.mkdir()
    model.write_text(
        "import torch\nfrom ...util.framework.vision import model_factory\n\n\nclass Model:\n"
        "    def __init__(self, test, device, batch_size=None, extra_args=[]):\n"
        "        self.model = getattr(model_factory.models, 'net')(pretrained=True)\n"
        "    def get_module(self): return self.model, (torch.randn(2, 8),)\n"
    )
    assert isinstance(torchbench.build(case(folder, "vision")).module, torch.nn.Linear)
    with pytest.raises(TypeError):  # with --pretrained nothing is changed
        torchbench.build(replace(case(folder, "vision"), pretrained=True))
