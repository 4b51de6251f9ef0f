"""Suite torchbench without torch: the list of a checkout, batch sizes, skips."""

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.schema import Case, Mode, Setting
from runner.cli.main import main
from suites import torchbench
from tests.suites.checkout import MODELS, made_up

ROOT = Path(__file__).parents[2]


def listed(
    folder: Path, *, mode: Mode = Mode.TRAINING, scale: str = "full", device: str = "cpu"
) -> Mapping[str, Case]:
    setting = Setting(mode=mode, device_type=device, scale=scale)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(made_up(folder)), *sys.path])
        return {case.name: case for case in torchbench.cases(setting)}


def test_every_folder_with_code_is_a_model(tmp_path: Path) -> None:
    found = listed(tmp_path)
    assert list(found) == sorted(MODELS)
    assert found["linear"].suite == "torchbench"
    assert listed(tmp_path, mode=Mode.GENERATE) == {}


@pytest.mark.parametrize(
    ("mode", "scale", "runs", "published"),
    [
        (Mode.TRAINING, "full", 64, 64),
        (Mode.INFERENCE, "full", 128, 128),
        (Mode.INFERENCE, "small", 4, 128),
        (Mode.TRAINING, "tiny", 2, 64),
    ],
)
def test_batch_sizes_are_read_from_the_class(
    tmp_path: Path, mode: Mode, scale: str, runs: int, published: int
) -> None:
    case = listed(tmp_path, mode=mode, scale=scale)["linear"]
    assert (case.batch_size, case.published_batch_size) == (runs, published)


def test_a_size_that_cannot_be_changed_or_is_not_stated_is_the_models_own(tmp_path: Path) -> None:
    found = listed(tmp_path)
    assert (found["own_size"].batch_size, found["own_size"].published_batch_size) == (None, 64)
    assert (found["without_a_model"].batch_size, found["without_a_model"].published_batch_size) == (
        None,
        None,
    )
    assert torchbench.published_batch("yolov3", "training", "    DEFAULT_TRAIN_BSIZE = 16\n") == 8


def test_what_pytorchs_harness_leaves_out_is_skipped_with_the_reason(tmp_path: Path) -> None:
    assert listed(tmp_path)["hf_GPT2"].skip == "PyTorch's harness leaves it to suite huggingface"
    assert listed(tmp_path)["linear"].skip == ""
    tables = torchbench.facts()
    names = [(table, name) for table in tables if table.startswith("skip") for name in tables[table]]
    assert all(len(tables[table][name]) > 10 for table, name in names)


@pytest.mark.skipif(find_spec("torchbenchmark") is not None, reason="torchbenchmark is installed")
def test_without_a_checkout_one_sentence_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--suites=torchbench"]) == 2
    assert "name it in PYTHONPATH, or install" in capsys.readouterr().err
