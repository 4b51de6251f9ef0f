"""Dropout and other random numbers, through ``compare()``: neutralized, or named."""

import dataclasses
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from harness.loading.dropout import KEPT_DROPOUT, neutralize
from harness.schema import Protocol, Record, Status
from torchduet import compare

CHECK = Protocol(performance=False)


def records(model: nn.Module, *compilers: str, **more: object) -> dict[str, Record]:
    found = compare(model, torch.randn(32, 16), compilers=compilers, protocol=CHECK, **more)  # type: ignore[arg-type]
    return {record.candidate: record for record in found.records}


def dropping() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.1), nn.ReLU(), nn.Linear(64, 8))


class Noisy(nn.Module):
    """Adds noise to what it computes, and returns beside it what is free of noise."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        plain = self.line(x)
        return self.changed(plain + torch.randn_like(plain), plain)

    def changed(self, noisy: torch.Tensor, plain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return noisy, plain


class Literal(Noisy):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return functional.dropout(self.line(x), 0.3), self.line(x)


class WrongBesideNoise(Noisy):
    def changed(self, noisy: torch.Tensor, plain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return noisy, plain * (1.1 if torch.compiler.is_compiling() else 1.0)


class NotFinite(Noisy):
    def changed(self, noisy: torch.Tensor, plain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return noisy * (torch.inf if torch.compiler.is_compiling() else 1.0), plain


@pytest.mark.parametrize(
    ("model", "draws", "more"),
    [
        (Noisy, "randn_like", {"mode": "inference"}),
        (Literal, "bernoulli_", {"mode": "inference"}),
        pytest.param(dropping, "bernoulli_", {"dropout": "keep"}, marks=pytest.mark.slow),
    ],
)
def test_what_draws_is_named(model: Callable[[], nn.Module], draws: str, more: dict[str, str]) -> None:
    record = records(model(), "inductor", **more)["inductor"]
    assert (record.status, record.parity and record.parity.random) == (Status.CANNOT_JUDGE, draws)


@pytest.mark.parametrize("model", [WrongBesideNoise, NotFinite])
def test_a_wrong_answer_is_not_excused_by_chance(model: Callable[[], nn.Module]) -> None:
    assert records(model(), "inductor", mode="inference")["inductor"].status is Status.FAIL_ACCURACY


def test_a_wrong_answer_beside_a_dropout_that_drops_nothing_fails() -> None:
    class Wrong(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = dropping()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wrong: torch.Tensor = self.parts(x) * (1.1 if torch.compiler.is_compiling() else 1.0)
            return wrong

    model = Wrong()
    assert records(model, "aot_eager")["aot_eager"].status is Status.FAIL_ACCURACY
    assert getattr(model.parts[1], "p", None) == 0.1  # of the caller


def test_a_model_in_eval_mode_says_nothing_of_dropout() -> None:
    facts = records(dropping().eval(), "aot_eager")["aot_eager"].model
    assert facts is not None
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
    assert record.parity is not None
    assert (record.parity.failed, record.parity.random) == (0, "")
    assert record.parity.unjudged.endswith("when its operations round differently")


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
