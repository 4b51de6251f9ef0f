"""Dropout and other random numbers, through ``compare()``: neutralized, or named."""

import dataclasses
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from harness.loading.dropout import KEPT_DROPOUT, neutralize
from harness.schema import Protocol, Record, Status
from tests.factories import known
from tests.worker.planted import Of
from torchduet import compare

CHECK = Protocol(performance=False)


def record_of(model: nn.Module, compiler: Any = "aot_eager", **more: Any) -> Record:
    (record,) = compare(model, torch.randn(32, 16), compilers=compiler, protocol=CHECK, **more).records
    return record


def draws_more(graph: torch.fx.GraphModule, example_inputs: object) -> Callable[..., Any]:
    """Draws other numbers than eager, as inductor's kernels do."""

    def run(*given: Any) -> Any:
        torch.rand(1)
        return graph.forward(*given)

    return run


def dropping() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.1), nn.ReLU(), nn.Linear(64, 8))


def noisy(of_noise: float = 1.0, beside: float = 1.0) -> nn.Module:
    """Returns what it computes with noise and without. Compiled, both are wrong by these factors."""

    def forward(x: torch.Tensor, line: nn.Linear) -> tuple[torch.Tensor, torch.Tensor]:
        plain = line(x)
        both = plain + torch.randn_like(plain), plain
        return (both[0] * of_noise, both[1] * beside) if torch.compiler.is_compiling() else both

    return Of(forward, nn.Linear(16, 8))


def literal() -> nn.Module:
    return Of(lambda x, line: (functional.dropout(line(x), 0.3), line(x)), nn.Linear(16, 8))


@pytest.mark.parametrize(
    ("model", "draws", "compiler", "more"),
    [
        (noisy, "randn_like", draws_more, {"mode": "inference"}),
        (literal, "bernoulli_", draws_more, {"mode": "inference"}),
        pytest.param(dropping, "bernoulli_", "inductor", {"dropout": "keep"}, marks=pytest.mark.slow),
    ],
)
def test_what_draws_is_named(
    model: Callable[[], nn.Module], draws: str, compiler: Any, more: dict[str, str]
) -> None:
    record = record_of(model(), compiler, **more)
    assert (record.status, record.parity and record.parity.random) == (Status.CANNOT_JUDGE, draws)


@pytest.mark.parametrize("wrong", [{"beside": 1.1}, {"of_noise": torch.inf}])
def test_a_wrong_answer_is_not_excused_by_chance(wrong: dict[str, float]) -> None:
    assert record_of(noisy(**wrong), draws_more, mode="inference").status is Status.FAIL_ACCURACY


def test_a_wrong_answer_beside_a_dropout_that_drops_nothing_fails() -> None:
    inner = dropping()
    model = Of(lambda x, inner: inner(x) * (1.1 if torch.compiler.is_compiling() else 1.0), inner)
    assert record_of(model).status is Status.FAIL_ACCURACY
    assert getattr(inner[1], "p", None) == 0.1  # of the caller


def test_a_model_in_eval_mode_says_nothing_of_dropout() -> None:
    facts = known(record_of(dropping().eval()).model)
    assert (facts.remarks, facts.generators) == ((), ())


def test_every_place_of_a_probability() -> None:
    @dataclasses.dataclass(frozen=True)
    class Frozen:
        resid_pdrop: float = 0.2
        layer_norm_eps: float = 1e-5

    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, dropout=0.3)
            self.memory = nn.LSTM(8, 8, num_layers=2, dropout=0.4)
            self.config = types.SimpleNamespace(
                hidden_dropout_prob=0.5, drop_last=True, layerdrop=0.1, eps=0.5
            )
            self.cfg = {"drop_path_rates": [0.0, 0.1], "rate": 0.5}
            self.inner = nn.Sequential(nn.Dropout2d(0.6), nn.Dropout(0.0))
            self.args = Frozen()
            self.dropout_p = 0.7

    model = Functional()
    assert sorted(neutralize(model)) == [0.1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    kept = [model.attention.dropout, model.memory.dropout, model.config.hidden_dropout_prob, model.dropout_p]
    assert [*kept, model.args.resid_pdrop] == [KEPT_DROPOUT] * 5
    assert [getattr(part, "p", None) for part in model.inner] == [KEPT_DROPOUT, 0.0]
    assert model.cfg == {"drop_path_rates": [0.0, KEPT_DROPOUT], "rate": 0.5}
    assert (model.config.layerdrop, model.config.eps) == (0.0, 0.5)
    assert neutralize(model) == ()


@pytest.mark.slow
def test_an_encoder_layer_has_several() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    found = compare(layer, torch.randn(4, 6, 16), compilers=["aot_eager"], protocol=CHECK)
    (record,) = found.records
    # the mean of a normalized output is zero in theory, so the loss is rounding noise
    assert record.status is Status.CANNOT_JUDGE
    parity = known(record.parity)
    assert (parity.failed, parity.random) == (0, "")
    assert parity.unjudged.endswith("when its operations round differently")


def test_the_callers_module_and_its_configuration_are_left_alone(tmp_path: Path) -> None:
    class Configured(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = types.SimpleNamespace(dropout=0.25)
            self.line = nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.dropout(self.line(x), self.config.dropout, self.training)

    model = Configured()
    found = compare(
        model, torch.randn(8, 16), compilers=["aot_eager"], protocol=CHECK, output_dir=tmp_path / "run"
    )
    assert found.records[0].status is Status.PASS
    assert model.config.dropout == 0.25
    assert "dropout (0.25) is 1e-30" in (tmp_path / "run" / "records.jsonl").read_text()
