"""The operations of suite ops: modules with inputs of a given size.

A class is called with its sizes; the first size is the batch. ``inputs()`` makes the arguments of
its forward. Weights are parameters, as in a model. Every module is scriptable, exportable and free of
control flow, so that every compiler accepts it. FlexAttention has no place here: torch compiles it in
eager, too, so it has no baseline.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional


class Operation(nn.Module):
    """``INPUTS`` inputs of the given sizes, unless a subclass makes others. ``make`` makes its weights."""

    INPUTS = 1

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes = tuple(sizes)
        self.make()

    def make(self) -> None:
        pass

    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(torch.randn(self.sizes) for _ in range(self.INPUTS))


class Plain:
    """Operations without weights: each method is the forward of an operation, with so many inputs."""

    def view_transpose(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1)

    def view_row(self, x: Tensor) -> Tensor:
        return x[0]

    def view_column(self, x: Tensor) -> Tensor:
        return x[:, 1]

    def view_slice(self, x: Tensor) -> Tensor:
        return x[:, ::2]

    def view_reshape(self, x: Tensor) -> Tensor:
        return x.view(-1, 2)

    def view_contiguous(self, x: Tensor) -> Tensor:
        return x.contiguous()

    def copy_transpose(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1).contiguous()

    def copy_slice(self, x: Tensor) -> Tensor:
        return x[:, ::2].contiguous()

    def copy_clone(self, x: Tensor) -> Tensor:
        return x.clone()

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def gelu(self, x: Tensor) -> Tensor:
        return functional.gelu(x)

    def sum_rows(self, x: Tensor) -> Tensor:
        return x.sum(dim=1)

    def sum_columns(self, x: Tensor) -> Tensor:
        return x.sum(dim=0)

    def softmax(self, x: Tensor) -> Tensor:
        return functional.softmax(x, dim=-1)

    def softmax_spelled_out(self, x: Tensor) -> Tensor:
        powers = torch.exp(x - x.amax(dim=-1, keepdim=True))
        return powers / powers.sum(dim=-1, keepdim=True)

    def swiglu(self, x: Tensor) -> Tensor:
        # the gate and the values lie beside each other, as one product makes them
        gate, values = x.chunk(2, dim=-1)
        return functional.silu(gate) * values

    def attention(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        # (batch, heads, length, width) of a head; causal
        return functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    def attention_unmasked(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value)


# -- matrix products ----------------------------------------------------------------


class Matmul(Operation):
    """(..., rows, inner) by a weight of (inner, columns): 2 * all rows * inner * columns FLOPs."""

    def make(self) -> None:
        *_, inner, columns = self.sizes
        self.weight = nn.Parameter(torch.randn(inner, columns) / math.sqrt(inner))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randn(self.sizes[:-1]),)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class MatmulInt8(Matmul):
    """``Matmul`` with torchao's weight of int8 and a scale for each column, in inference only."""

    def make(self) -> None:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        *_, inner, columns = self.sizes
        self.linear = nn.Linear(inner, columns, bias=False)
        # inductor's settings are a candidate's own
        quantize_(self.linear, Int8WeightOnlyConfig(version=2, set_inductor_config=False))

    def forward(self, x: Tensor) -> Tensor:
        product: Tensor = self.linear(x)
        return product


class MatmulBatched(Operation):
    """``batch`` products of their own, no operand shared."""

    def inputs(self) -> tuple[Tensor, ...]:
        batch, rows, inner, columns = self.sizes
        return torch.randn(batch, rows, inner), torch.randn(batch, inner, columns) / math.sqrt(inner)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.bmm(x, y)


# -- parts of models ------------------------------------------------------------------


class ElementwiseChain(Operation):
    """Scale and shift by column, GELU, and the input added: four operations of eager."""

    def make(self) -> None:
        self.scale, self.shift = (nn.Parameter(torch.randn(self.sizes[-1])) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + functional.gelu(x * self.scale + self.shift)


class SumAll(Operation):
    """The sum of random numbers with mean 1. With mean 0, the sum would cancel to its rounding errors."""

    def inputs(self) -> tuple[Tensor, ...]:
        return (1 + torch.randn(self.sizes),)

    def forward(self, x: Tensor) -> Tensor:
        return x.sum()


class LayerNorm(Operation):
    def make(self) -> None:
        self.norm: nn.Module = nn.LayerNorm(self.sizes[-1])

    def forward(self, x: Tensor) -> Tensor:
        normal: Tensor = self.norm(x)
        return normal


class LayerNormSpelledOut(Operation):
    def make(self) -> None:
        self.weight = nn.Parameter(torch.ones(self.sizes[-1]))
        self.bias = nn.Parameter(torch.zeros(self.sizes[-1]))

    def forward(self, x: Tensor) -> Tensor:
        centered = x - x.mean(dim=-1, keepdim=True)
        spread = torch.rsqrt((centered * centered).mean(dim=-1, keepdim=True) + 1e-5)
        return centered * spread * self.weight + self.bias


class RmsNorm(LayerNorm):
    """torch 2.4 or newer."""

    def make(self) -> None:
        self.norm = nn.RMSNorm(self.sizes[-1], eps=1e-5)


class RmsNormSpelledOut(Operation):
    def make(self) -> None:
        self.weight = nn.Parameter(torch.ones(self.sizes[-1]))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5))


class Rotary(Operation):
    """(batch, heads, length, width): the halves of each head are turned by an angle of their position."""

    if TYPE_CHECKING:  # TorchScript cannot read it
        cos: Tensor
        sin: Tensor

    def make(self) -> None:
        *_, length, width = self.sizes
        speeds = 10000.0 ** (-torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(length), speeds).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-second, first), dim=-1) * self.sin


class CrossEntropy(Operation):
    """(rows, vocabulary)"""

    def inputs(self) -> tuple[Tensor, ...]:
        rows, vocabulary = self.sizes
        return torch.randn(self.sizes), torch.randint(vocabulary, (rows,))

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(logits, target)


class Embedding(Operation):
    """(tokens, vocabulary, width)"""

    def make(self) -> None:
        self.weight = nn.Parameter(torch.randn(self.sizes[1:]))

    def inputs(self) -> tuple[Tensor, ...]:
        return (torch.randint(self.sizes[1], self.sizes[:1]),)

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.embedding(tokens, self.weight)


class Convolution(Operation):
    """(batch, channels, side, kernel), as many channels as before, channels first."""

    def make(self) -> None:
        _, channels, _, kernel = self.sizes
        self.convolution = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, bias=False)

    def inputs(self) -> tuple[Tensor, ...]:
        batch, channels, side, _ = self.sizes
        return (torch.randn(batch, channels, side, side),)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.convolution(x)
        return result


class ConvolutionChannelsLast(Convolution):
    def make(self) -> None:
        super().make()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def inputs(self) -> tuple[Tensor, ...]:
        return (super().inputs()[0].contiguous(memory_format=torch.channels_last),)


class AttentionPadded(Operation):
    """With a boolean mask (batch, 1, 1, length): the last quarter of each sequence is padding."""

    def inputs(self) -> tuple[Tensor, ...]:
        batch, _, length, _ = self.sizes
        mask = (torch.arange(length) < length - length // 4).expand(batch, 1, 1, length)
        return *(torch.randn(self.sizes) for _ in range(3)), mask.contiguous()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


class AttentionSpelledOut(Operation):
    INPUTS = 3

    if TYPE_CHECKING:  # TorchScript cannot read it
        mask: Tensor

    def make(self) -> None:
        length = self.sizes[-2]
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(diagonal=1))

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
        shares = functional.softmax(scores.masked_fill(self.mask, -math.inf), dim=-1)
        return shares @ value


OPERATIONS = {
    re.sub(r"(?<=.)([A-Z])", r"_\1", kind.__name__).lower(): kind
    for kind in (*Operation.__subclasses__(), MatmulInt8, RmsNorm, ConvolutionChannelsLast)
}
"""``MatmulBatched`` is the operation ``matmul_batched``."""
OPERATIONS |= {
    name: type(
        name.title().replace("_", ""),
        (Operation,),
        {"forward": forward, "INPUTS": len(inspect.signature(forward).parameters) - 1},
    )
    for name, forward in inspect.getmembers(Plain, inspect.isfunction)
}


def make_operation(
    name: str, sizes: Sequence[int], *, shares: bool | None = None
) -> tuple[Operation, tuple[Tensor, ...]]:
    """The operation and new random inputs.

    ``shares``: whether its result is to lie in its input's storage; None: that is not asked.
    ``LookupError`` for a name that is none, ``ValueError`` where the storage is not as promised.
    """
    if name not in OPERATIONS:
        raise LookupError(f"there is no operation called {name!r}")
    module = OPERATIONS[name](sizes)
    inputs = module.inputs()
    if shares is not None:
        hold_to_storage(module, inputs, shares=shares)
    return module, inputs


def hold_to_storage(module: nn.Module, inputs: tuple[Tensor, ...], *, shares: bool) -> None:
    """``ValueError`` unless the result lies in the first input's storage exactly if ``shares`` says so."""
    with torch.no_grad():
        result = module(*inputs)
    if same_storage(result, inputs[0]) is not shares:
        wanted = "a view" if shares else "a copy"
        what = "has a storage of its own" if shares else "shares its input's storage"
        raise ValueError(f"the result of {type(module).__name__} was to be {wanted}, but {what}")


def same_storage(first: Tensor, second: Tensor) -> bool:
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def weighted_sum(output: Tensor, target: Tensor) -> Tensor:
    """The loss of an operation: the sum of its output times random numbers, where its backward begins."""
    return (output * target).sum()
