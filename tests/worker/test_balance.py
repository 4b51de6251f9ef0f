"""Weights at which every part counts: what low precision would hide."""

import math
from typing import cast

import pytest
import torch
from torch import nn

from harness.parity.data import balance_of, scale_weights
from tests.worker.planted import Attention


class Branches(nn.Module):
    """Residual branches of small weights, which add less than bfloat16 rounds away, as in a new GPT."""

    def __init__(self, size: float = 0.02) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(4))
        self.inner = nn.ModuleList((Attention(fused=True), mlp(), Attention(fused=True), mlp()))
        self.head = nn.Linear(32, 50, bias=False)
        for part in self.inner.modules():
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, std=size)
                nn.init.zeros_(part.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for norm, inner in zip(self.norms, self.inner, strict=True):
            x = x + inner(norm(x))
        return cast("torch.Tensor", self.head(x))


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))


# -- balance ------------------------------------------------------------------------------
def test_every_module_has_outputs_near_one_and_the_weights_are_as_before() -> None:
    torch.manual_seed(0)
    module = Branches(0.001)
    tokens = torch.randint(0, 50, (4, 32))
    before = {name: parameter.clone() for name, parameter in module.named_parameters()}
    factors = balance_of(module, lambda: module(tokens))
    assert all(torch.equal(before[name], parameter) for name, parameter in module.named_parameters())
    assert all(math.log2(factor).is_integer() for factor in factors.values())
    assert "inner.1.2.weight" in factors
    sizes = {}
    hooks = [
        part.register_forward_hook(
            lambda _, __, output, name=name: sizes.update(
                {name: float(output.detach().square().mean().sqrt())}
            )
        )
        for name, part in module.named_modules()
        if isinstance(part, nn.Linear)
    ]
    module(tokens)
    assert sizes["inner.1.2"] < 1e-4
    undo = scale_weights(module, factors)
    module(tokens)
    for hook in hooks:
        hook.remove()
    assert all(0.7 <= size <= 1.42 for size in sizes.values()), sizes
    for restore in undo:
        restore()
    assert all(torch.equal(before[name], parameter) for name, parameter in module.named_parameters())


class Conv1D(nn.Module):
    """The product of transformers' GPT-2: its name is that of a convolution, its channels are last."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 24) * 0.001)
        self.bias = nn.Parameter(torch.zeros(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class Raw(nn.Module):
    """Products and a bias in one module, as models that are written for reading have them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(16, 64) * 0.001)
        self.down = nn.Parameter(torch.randn(64, 16) * 0.001)
        self.shift = nn.Parameter(torch.full((16,), 0.001))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.up) @ self.down + self.shift


@pytest.mark.parametrize(("kind", "weights", "off"), [(Conv1D, {"weight"}, 3.0), (Raw, {"up", "down"}, 10.0)])
def test_weights_of_a_product_that_is_no_module_of_torch_have_factors_too(
    kind: type[nn.Module], weights: set[str], off: float
) -> None:
    """Several in one module: by their own size."""
    torch.manual_seed(0)
    module, x = kind(), torch.randn(4, 12, 16)
    before = float(module(x).detach().square().mean().sqrt())
    factors = balance_of(module, lambda: module(x))
    assert factors.keys() == weights
    scale_weights(module, factors)
    assert before < 0.01
    assert 1 / off <= float(module(x).detach().square().mean().sqrt()) <= off


def test_the_bias_of_a_convolution_is_for_its_channels_also_where_the_width_is_the_same() -> None:
    torch.manual_seed(0)
    module, x = nn.Conv2d(4, 8, 1), torch.randn(2, 4, 8, 8)
    with torch.no_grad():
        module.bias.copy_(torch.arange(8.0) * 100)  # type: ignore[union-attr] # it has one
        module.weight.mul_(0.001)
    factors = balance_of(module, lambda: module(x))
    assert factors["weight"] >= 256.0  # not hidden by the bias


def test_a_weight_that_two_modules_share_has_one_factor_and_a_lossy_one_has_none() -> None:
    module = nn.Sequential(nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False))
    weight = cast("nn.Linear", module[0]).weight
    nn.init.normal_(weight, std=0.001)
    module[1].weight = weight
    x = torch.randn(64, 16)
    assert balance_of(module, lambda: module(x)).keys() == {"0.weight"}
    tiny = nn.Linear(16, 16, bias=False).half()
    tiny.weight.data.fill_(2.0**-10)
    tiny.weight.data[0, 0] = 60000.0  # four times as large it would overflow
    quiet = torch.randn(64, 16, dtype=torch.float16) * 2.0**-10
    quiet[:, 0] = 0.0
    assert balance_of(tiny, lambda: tiny(quiet)) == {}


class Tied(nn.Module):
    """A language model whose embedding is also its last product, with the small weights of a first step."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(1000, 64), nn.Embedding(32, 64)
        self.norm, self.last = nn.LayerNorm(64), nn.Linear(64, 1000, bias=False)
        for part in (self.words, self.places, self.last):
            nn.init.normal_(part.weight, std=0.002)
        if tied:
            self.last.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1])
        logits: torch.Tensor = self.last(self.norm(self.words(tokens) + self.places(places)))
        return logits


@pytest.mark.parametrize("tied", [True, False])
def test_an_embedding_that_is_also_the_last_product_does_not_make_the_softmax_one_hot(tied: bool) -> None:
    torch.manual_seed(0)
    module = Tied(tied=tied)
    tokens = torch.randint(0, 1000, (4, 32))
    factors = balance_of(module, lambda: module(tokens))
    assert factors["words.weight"] == (64.0 if tied else 512.0)
    assert factors["places.weight"] <= 8 * factors["words.weight"]  # neither hides the other
    scale_weights(module, factors)
    loss = nn.functional.cross_entropy(module(tokens).flatten(0, 1), tokens.flatten())
    (gradient,) = torch.autograd.grad(loss, [module.last.weight])
    assert not bool(((gradient != 0) & (gradient.abs() < torch.finfo(torch.float32).tiny)).any())
    assert 0.2 < float(module(tokens).detach().std()) < 8
