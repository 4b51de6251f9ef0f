"""Suite torchbench builds the models of a made-up checkout, and says what a model lacks."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from harness.schema import Case, Mode
from suites import torchbench
from tests.factories import Patch, known, make_job
from tests.suites.checkout import made_up


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The checkout; afterwards Python has forgotten it."""
    before = list(sys.path)
    sys.path.insert(0, str(made_up(tmp_path)))
    yield tmp_path
    sys.path[:] = before
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchbenchmark"]:
        del sys.modules[name]


def case(name: str, mode: Mode = Mode.TRAINING, batch_size: int | None = 4) -> Case:
    return make_job(name, suite="torchbench", mode=mode, batch_size=batch_size).case


@pytest.mark.parametrize(
    ("name", "mode", "asked", "batch"),
    [
        ("linear", Mode.TRAINING, 4, 4),
        ("named_inputs", Mode.TRAINING, 4, 4),  # passed by name
        ("own_size", Mode.TRAINING, None, 64),
        ("own_size", Mode.INFERENCE, None, 128),
    ],
)
def test_a_model_is_built_with_its_inputs_at_the_batch_that_was_asked_for_or_its_own(
    folder: Path, name: str, mode: Mode, asked: int | None, batch: int
) -> None:
    workload = torchbench.build(case(name, mode, batch_size=asked))
    output = workload.module(*workload.args, **workload.kwargs)
    assert output.shape == (batch, 4)
    assert known(workload.loss)(output, None).requires_grad


def test_what_a_model_sets_in_the_process_goes_again(folder: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(folder.parent)
    seed = torch.manual_seed
    torchbench.build(case("sets_what_it_likes"))
    assert torch.manual_seed is seed
    assert torch.get_default_dtype() is torch.float32
    modes: Any = torch.overrides
    assert modes._get_current_function_mode_stack() == []  # a default device is such a mode
    assert Path.cwd() == folder.parent
    assert (folder / "made").is_dir()  # beside the checkout's own files, not beside the user's


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("needs_a_package", "needs_a_package needs the package some_missing_package, which is not installed"),
        ("needs_another_version", "needs_another_version does not work with the installed torch 2"),
        ("needs_another_module", "needs the module torch.no_such_part, which the installed torch 2"),
        ("needs_the_network", "needs_the_network needs the network, for files .*Name or service not known"),
        ("needs_a_file", r"the file torchbenchmark/data/\.data/images\.pt of the checkout, which .*install"),
        ("needs_data", "needs_data needs data files, which the model's install.py"),
        ("needs_the_installer", "needs_the_installer needs data files, which the model's install.py"),
        ("without_a_model", "torchbenchmark.models.without_a_model has no class Model"),
        ("nothing", "the checkout has no model 'nothing'"),
        ("fails", "seven layers are too few"),  # the model's own
    ],
)
def test_what_a_model_lacks_is_named(folder: Path, name: str, says: str) -> None:
    with pytest.raises(ValueError if name == "fails" else LookupError, match=says):
        torchbench.build(case(name))


def test_torchvisions_models_have_no_published_weights(folder: Path, monkeypatch: Patch) -> None:
    torchvision = pytest.importorskip("torchvision")
    download = Mock(side_effect=OSError("no network in a test"))
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", download)
    torchbench.build(case("has_weights"))
    download.assert_not_called()
    with pytest.raises(OSError, match="no network in a test"):  # with --pretrained nothing is changed
        torchbench.build(replace(case("has_weights"), pretrained=True))
    download.assert_called_once()
    kind = torchvision.models.ResNet18_Weights
    assert kind.verify(kind.DEFAULT) is kind.DEFAULT  # and afterwards nothing has stayed changed


@pytest.mark.parametrize(
    ("mode", "expected"), [(Mode.TRAINING, {"box_detections_per_img": 4}), (Mode.INFERENCE, None)]
)
def test_vision_maskrcnn_gets_arguments_in_training_alone(folder: Path, mode: Mode, expected: object) -> None:
    workload = torchbench.build(case("vision_maskrcnn", mode, batch_size=None))
    assert vars(workload.module)["given"] == expected
