"""``torchduet.compare``: the Python way in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness.schema import Protocol, Status
from runner.errors import UsageError
from runner.record_file import read_records
from torchduet import compare

FEW = Protocol(repeat=10, min_sample_s=0.0)


class Wrong(nn.Module):
    """Computes something else as soon as it is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        scale = 2.0 if torch.compiler.is_compiling() else 1.0
        return values * self.weight * scale


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def test_a_module_is_measured_here_and_left_as_it_was(tmp_path: Path) -> None:
    model, inputs = mlp(), torch.randn(32, 8)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.random.get_rng_state()
    result = compare(model, inputs, compilers=["eager", "aot_eager"], protocol=FEW)
    assert [r.status for r in result.records] == [Status.PASS, Status.PASS]
    assert result["aot_eager"].n == 10
    assert not result.isolated
    assert all(any("not isolated" in note for note in r.notes) for r in result.records)
    assert "Sequential" in str(result)
    assert "Not isolated" in str(result)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert torch.equal(random, torch.random.get_rng_state())
    result.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_wrong_answer_fails_and_is_kept_on_disk(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    result = compare(
        Wrong(),
        (torch.randn(4, 8),),
        compilers=["aot_eager"],
        mode="inference",
        protocol=FEW,
        output_dir=folder,
    )
    assert result["aot_eager"].record.status is Status.FAIL_ACCURACY
    assert read_records(folder / "records.jsonl").records == result.records


def test_named_inputs_and_a_loss_of_ones_own() -> None:
    def loss(output: Any, target: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(output, target)

    inputs, target = {"input": torch.randn(6, 8)}, torch.randint(4, (6,))
    result = compare(mlp(), inputs, compilers=["eager"], loss=loss, target=target, protocol=FEW)
    assert result["eager"].record.status is Status.PASS


def test_a_model_by_name_is_isolated(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(8, 4), torch.randn(16, 8)\n", encoding="utf-8"
    )
    result = compare(f"{source}:make", compilers=["eager"], mode="inference", protocol=FEW)
    assert result.isolated
    assert result["eager"].record.status is Status.PASS
    assert "--model=" in result["eager"].record.reproduce


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"compilers": ["indutcor"]},
            "compilers: there is no compiler called 'indutcor'; did you mean inductor",
        ),
        ({"mode": "dreaming"}, "mode: there is no mode called 'dreaming'"),
        ({"dtype": "float33"}, "dtype: there is no precision called 'float33'"),
    ],
)
def test_a_wrong_word_is_one_sentence(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        compare(mlp(), torch.randn(2, 8), **{"compilers": ["eager"], **changes})


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(TypeError, match="model must be a torch module"):
        compare(3, torch.randn(2))  # type: ignore[arg-type]


def test_without_times_there_is_no_plot() -> None:
    result = compare(mlp(), torch.randn(2, 8), compilers=["eager"], protocol=Protocol(performance=False))
    with pytest.raises(ValueError, match="nothing was timed"):
        result.plot()
