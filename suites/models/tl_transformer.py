"""GPT-2 in the teaching style of TransformerLens: every step written out, one weight per head.

The einsum letters: b batch, q and k the positions of query and key, h head,
d d_model, e d_head. Nothing is fused by hand, so that compilers can fuse it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class TLTransformerConfig:
    vocab_size: int
    block_size: int  # the longest sequence
    n_layer: int
    n_head: int
    d_model: int
    d_head: int
    d_mlp: int
    init_std: float = 0.02
    layer_norm_eps: float = 1e-5


class LayerNorm(nn.Module):
    def __init__(self, config: TLTransformerConfig) -> None:
        super().__init__()
        self.eps = config.layer_norm_eps
        self.w = nn.Parameter(torch.ones(config.d_model))
        self.b = nn.Parameter(torch.zeros(config.d_model))

    def forward(self, residual: Tensor) -> Tensor:
        centered = residual - residual.mean(dim=-1, keepdim=True)  # (b, q, d)
        variance = residual.var(dim=-1, keepdim=True, unbiased=False)  # (b, q, 1)
        return centered / (variance + self.eps).sqrt() * self.w + self.b


class Attention(nn.Module):
    def __init__(self, config: TLTransformerConfig) -> None:
        super().__init__()
        n_head, d_model, d_head = config.n_head, config.d_model, config.d_head
        self.scale = math.sqrt(d_head)
        self.W_Q = _normal((n_head, d_model, d_head), config.init_std)
        self.W_K = _normal((n_head, d_model, d_head), config.init_std)
        self.W_V = _normal((n_head, d_model, d_head), config.init_std)
        self.W_O = _normal((n_head, d_head, d_model), config.init_std)
        self.b_Q = nn.Parameter(torch.zeros(n_head, d_head))
        self.b_K = nn.Parameter(torch.zeros(n_head, d_head))
        self.b_V = nn.Parameter(torch.zeros(n_head, d_head))
        self.b_O = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        q = torch.einsum("bqd,hde->bqhe", [x, self.W_Q]) + self.b_Q
        k = torch.einsum("bkd,hde->bkhe", [x, self.W_K]) + self.b_K
        v = torch.einsum("bkd,hde->bkhe", [x, self.W_V]) + self.b_V
        scores = torch.einsum("bqhe,bkhe->bhqk", [q, k]) / self.scale
        pattern = self.hide_future(scores).softmax(dim=-1)  # (b, h, q, k)
        z = torch.einsum("bhqk,bkhe->bqhe", [pattern, v])
        return torch.einsum("bqhe,hed->bqd", [z, self.W_O]) + self.b_O

    def hide_future(self, scores: Tensor) -> Tensor:
        """``scores`` (b, h, q, k) with -1e5 wherever the key comes after the query.

        float16 ends at -65504 and ``masked_fill`` refuses what does not fit, so
        there the value is -6e4; the softmax of either is exactly 0.
        """
        hidden = -6e4 if scores.dtype == torch.float16 else -1e5
        everything = torch.ones(scores.size(-2), scores.size(-1), dtype=torch.bool, device=scores.device)
        return scores.masked_fill(everything.triu(1), hidden)


class MLP(nn.Module):
    def __init__(self, config: TLTransformerConfig) -> None:
        super().__init__()
        self.W_in = _normal((config.d_model, config.d_mlp), config.init_std)
        self.b_in = nn.Parameter(torch.zeros(config.d_mlp))
        self.W_out = _normal((config.d_mlp, config.d_model), config.init_std)
        self.b_out = nn.Parameter(torch.zeros(config.d_model))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(x @ self.W_in + self.b_in, approximate="tanh")  # (b, q, d_mlp)
        return x @ self.W_out + self.b_out  # (b, q, d)


class Block(nn.Module):
    def __init__(self, config: TLTransformerConfig) -> None:
        super().__init__()
        self.ln1 = LayerNorm(config)
        self.attn = Attention(config)
        self.ln2 = LayerNorm(config)
        self.mlp = MLP(config)

    def forward(self, residual: Tensor) -> Tensor:
        residual = residual + self.attn(self.ln1(residual))
        output: Tensor = residual + self.mlp(self.ln2(residual))
        return output


class TLTransformer(nn.Module):
    def __init__(self, config: TLTransformerConfig) -> None:
        super().__init__()
        self.W_E = _normal((config.vocab_size, config.d_model), config.init_std)
        self.W_pos = _normal((config.block_size, config.d_model), config.init_std)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_final = LayerNorm(config)
        self.W_U = _normal((config.d_model, config.vocab_size), config.init_std)
        self.b_U = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens`` (batch, time) to logits (batch, time, vocab_size); time <= block_size."""
        residual = self.W_E[tokens] + self.W_pos[: tokens.size(1)]  # (b, q, d)
        for block in self.blocks:
            residual = block(residual)
        logits: Tensor = self.ln_final(residual) @ self.W_U + self.b_U
        return logits


def _normal(shape: tuple[int, ...], std: float) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape).normal_(std=std))
