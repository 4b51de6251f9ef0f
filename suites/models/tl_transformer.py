"""GPT-2 in the teaching style of TransformerLens: every step written out, one weight per head.

The einsum letters: b batch, q and k the positions of query and key, h head,
d d_model, e d_head. Nothing is fused by hand, so that compilers can fuse it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class LayerNorm(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(d_model))
        self.b = nn.Parameter(torch.zeros(d_model))

    def forward(self, residual: Tensor) -> Tensor:
        centered = residual - residual.mean(dim=-1, keepdim=True)  # (b, q, d)
        variance = residual.var(dim=-1, keepdim=True, unbiased=False)  # (b, q, 1)
        return centered / (variance + 1e-5).sqrt() * self.w + self.b


class Attention(nn.Module):
    def __init__(self, n_head: int, d_model: int, d_head: int) -> None:
        super().__init__()
        self.scale = math.sqrt(d_head)
        self.W_Q = _normal(n_head, d_model, d_head)
        self.W_K = _normal(n_head, d_model, d_head)
        self.W_V = _normal(n_head, d_model, d_head)
        self.W_O = _normal(n_head, d_head, d_model)
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
    def __init__(self, d_model: int, d_mlp: int) -> None:
        super().__init__()
        self.W_in = _normal(d_model, d_mlp)
        self.b_in = nn.Parameter(torch.zeros(d_mlp))
        self.W_out = _normal(d_mlp, d_model)
        self.b_out = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.gelu(x @ self.W_in + self.b_in, approximate="tanh")  # (b, q, d_mlp)
        return x @ self.W_out + self.b_out  # (b, q, d)


class Block(nn.Module):
    def __init__(self, n_head: int, d_model: int, d_head: int, d_mlp: int) -> None:
        super().__init__()
        self.ln1 = LayerNorm(d_model)
        self.attn = Attention(n_head, d_model, d_head)
        self.ln2 = LayerNorm(d_model)
        self.mlp = MLP(d_model, d_mlp)

    def forward(self, residual: Tensor) -> Tensor:
        residual = residual + self.attn(self.ln1(residual))
        output: Tensor = residual + self.mlp(self.ln2(residual))
        return output


class TLTransformer(nn.Module):
    """``block_size``: the longest sequence."""

    def __init__(
        self,
        *,
        vocab_size: int,
        block_size: int,
        n_layer: int,
        n_head: int,
        d_model: int,
        d_head: int,
        d_mlp: int,
    ) -> None:
        super().__init__()
        self.W_E = _normal(vocab_size, d_model)
        self.W_pos = _normal(block_size, d_model)
        self.blocks = nn.ModuleList([Block(n_head, d_model, d_head, d_mlp) for _ in range(n_layer)])
        self.ln_final = LayerNorm(d_model)
        self.W_U = _normal(d_model, vocab_size)
        self.b_U = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens`` (batch, time) to logits (batch, time, vocab_size); time <= block_size."""
        residual = self.W_E[tokens] + self.W_pos[: tokens.size(1)]  # (b, q, d)
        for block in self.blocks:
            residual = block(residual)
        logits: Tensor = self.ln_final(residual) @ self.W_U + self.b_U
        return logits


def _normal(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape).normal_(std=0.02))
