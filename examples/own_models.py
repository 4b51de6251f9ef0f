"""Twenty kinds of models of users, one function each.

    torchduet --model examples/own_models.py:gpt2 --training --compilers=eager,aot_eager,inductor

``examples/README.md`` has the result of each model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Made = tuple[Any, ...]
"""``(module, inputs)``, ``(module, inputs, loss)`` or ``(module, inputs, loss, target)``."""


def sequential() -> Made:
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)), torch.randn(64, 64)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.drop = nn.Dropout2d(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(functional.relu(self.norm(self.first(x))))
        dropped: Tensor = self.drop(y)
        return x + dropped


def resnet() -> Made:
    """Batch normalization, dropout, and a loss with a target."""
    body = [nn.Conv2d(3, 16, 3, padding=1), Residual(16), Residual(16), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*body, nn.Dropout(0.2), nn.Linear(16, 10))
    return model, torch.randn(8, 3, 32, 32), functional.cross_entropy, torch.randint(10, (8,))


class Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.memory = nn.LSTM(32, 64, num_layers=2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(64, 100)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.memory(self.embed(tokens))[0])
        return found


def rnn() -> Made:
    return Reader(), torch.randint(100, (8, 24))


def gpt2() -> Made:
    """A model of transformers with dropout 0.1. Its inputs have labels, its output has the loss."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=500, n_positions=64)
    tokens = torch.randint(500, (4, 32))
    return GPT2LMHeadModel(config), {"input_ids": tokens, "labels": tokens}


class UNetBlock(nn.Module):
    """A block of a diffusion U-Net: time embedding, group norms, attention over pixels, a skip connection."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, width) for _ in range(3)])
        self.convolutions = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(2)])
        self.time = nn.Linear(64, width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        waves = torch.exp(torch.arange(32, device=x.device) * -0.3) * time[:, None]
        embedded = self.time(torch.cat([waves.sin(), waves.cos()], dim=1))[:, :, None, None]
        y = self.convolutions[0](functional.silu(self.norms[0](x))) + embedded
        y = x + self.convolutions[1](functional.silu(self.norms[1](y)))
        pixels = self.norms[2](y).flatten(2).transpose(1, 2)
        seen = self.attention(pixels, pixels, pixels, need_weights=False)[0]
        found: Tensor = y + seen.transpose(1, 2).reshape(y.shape)
        return found


def unet_block() -> Made:
    return UNetBlock(), (torch.randn(2, 32, 16, 16), torch.rand(2) * 100)


class Mixture(nn.Module):
    """Each token goes to one of four experts. The forward loops over the experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(32, 4)
        self.experts = nn.ModuleList([nn.Linear(32, 32) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).max(-1)
        found = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            places = (chosen == number).nonzero().squeeze(-1)
            found = found.index_add(0, places, expert(x[places]) * weights[places, None])
        return found


def mixture_of_experts() -> Made:
    return Mixture(), torch.randn(64, 32)


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            if x.abs().mean() < 0.5:
                break
            x = torch.tanh(self.line(x))
        return x * 2 if x.sum() > 0 else x - 1


def control_flow() -> Made:
    """Control flow that depends on values."""
    return Deciding(), torch.randn(32, 32)


def sparse_embedding() -> Made:
    return nn.Sequential(nn.Embedding(1000, 32, sparse=True), nn.Linear(32, 8)), torch.randint(1000, (64,))


class Spectral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(33, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=64)
        return found


def complex_numbers() -> Made:
    return Spectral(), torch.randn(16, 64)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(200, 32)
        self.head = nn.Linear(32, 200, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embed(tokens)))  # type: ignore[no-any-return]


def tied_weights() -> Made:
    return Tied(), torch.randint(200, (8, 16))


class Averaging(nn.Module):
    mean: Tensor
    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(16, 16)
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.line(x)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * y.mean(0))
            self.steps += 1
        return y - self.mean


def buffers_updated() -> Made:
    """The forward changes buffers, in training and in inference."""
    return Averaging(), torch.randn(32, 16)


@dataclass
class Batch:
    values: Tensor
    mask: Tensor


class Structured(nn.Module):
    """The inputs are a dataclass, a list and a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(16, 16)

    def forward(self, batch: Batch, more: list[Tensor], named: dict[str, Tensor]) -> Tensor:
        found: Tensor = self.line(batch.values * batch.mask) + more[0] * more[1] + named["bias"]
        return found


def structured_inputs() -> Made:
    batch = Batch(torch.randn(8, 16), torch.ones(8, 1))
    return Structured(), (batch, [torch.randn(8, 16), torch.randn(8, 1)], {"bias": torch.randn(16)})


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        y = self.line(x)
        return {"logits": y, "chosen": y.argmax(-1)}, {"norm": y.norm()}


def outputs_tuple_of_dicts() -> Made:
    return Several(), torch.randn(8, 16)


def frozen_parts() -> Made:
    """The body is frozen and its normalization is in eval mode; only the head is trained."""
    body = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU())
    body.requires_grad_(requires_grad=False)
    body.eval()
    return nn.Sequential(body, nn.Linear(32, 4)), torch.randn(16, 16)


def float64() -> Made:
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).double(), torch.randn(
        16, 16
    ).double()


class Counting(nn.Module):
    """Integer inputs and outputs, no weights."""

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.bincount(tokens.flatten(), minlength=64).cumsum(0) % 7


def integers_alone() -> Made:
    return Counting(), torch.randint(64, (32, 32))


class LowRank(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.02)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.drop = nn.Dropout(0.05)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.drop(x) @ self.down.T @ self.up.T  # type: ignore[no-any-return]


def lora() -> Made:
    return nn.Sequential(LowRank(nn.Linear(32, 64)), nn.ReLU(), LowRank(nn.Linear(64, 8))), torch.randn(
        16, 32
    )


def quantised() -> Made:
    """Linear layers with int8 weights, quantized by torch.ao."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao is deprecated
        model = torch.ao.quantization.quantize_dynamic(  # type: ignore[no-untyped-call]
            nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)), {nn.Linear}, dtype=torch.qint8
        )
    return model, torch.randn(16, 32)


def scripted() -> Made:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.script is deprecated
        model = torch.jit.script(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)))
    return model, torch.randn(16, 32)


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def functional_closure() -> Made:
    """The weights are in a closure, not in a module."""
    weight = torch.randn(16, 16, requires_grad=True)
    return Calls(lambda x: torch.tanh(x @ weight)), torch.randn(8, 16)


MODELS = (
    *("sequential", "resnet", "rnn", "gpt2", "unet_block", "mixture_of_experts", "control_flow"),
    *("sparse_embedding", "complex_numbers", "tied_weights", "buffers_updated", "structured_inputs"),
    *("outputs_tuple_of_dicts", "frozen_parts", "float64", "integers_alone", "lora", "quantised", "scripted"),
    "functional_closure",
)
