"""GPT-2 (Radford et al., 2019) in the form that nanoGPT made common.

Pre-norm blocks, one fused projection to queries, keys and values, fused
attention, exact GELU, input and output embedding tied. Parameters carry
GPT-2's names (wte, wpe, c_attn, c_proj, c_fc), so that weights can be
compared with other implementations; the test does so with transformers'.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class LayerNorm(nn.Module):
    """``nn.LayerNorm`` with an optional bias, which torch itself has only from 2.1 on."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd: int, n_head: int, dropout: float, bias: bool) -> None:
        super().__init__()
        if n_embd % n_head:
            raise ValueError(f"n_embd {n_embd} is not a multiple of n_head {n_head}")
        self.n_head = n_head
        self.dropout = dropout
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=bias)
        self.resid_dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        by_head = (batch, time, self.n_head, width // self.n_head)
        q, k, v = self.c_attn(x).chunk(3, dim=-1)  # each (batch, time, n_embd)
        y = functional.scaled_dot_product_attention(
            q.view(by_head).transpose(1, 2),  # (batch, n_head, time, n_embd / n_head)
            k.view(by_head).transpose(1, 2),
            v.view(by_head).transpose(1, 2),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=True,
        )
        y = y.transpose(1, 2).reshape(batch, time, width)  # heads side by side again
        mixed: Tensor = self.resid_dropout(self.c_proj(y))
        return mixed


class FeedForward(nn.Module):
    def __init__(self, n_embd: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
        self.c_proj = nn.Linear(4 * n_embd, n_embd, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        wide = functional.gelu(self.c_fc(x))  # (batch, time, 4 * n_embd)
        narrow: Tensor = self.dropout(self.c_proj(wide))  # (batch, time, n_embd)
        return narrow


class Block(nn.Module):
    def __init__(self, n_embd: int, n_head: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(n_embd, bias)
        self.attn = CausalSelfAttention(n_embd, n_head, dropout, bias)
        self.ln_2 = LayerNorm(n_embd, bias)
        self.mlp = FeedForward(n_embd, dropout, bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        output: Tensor = x + self.mlp(self.ln_2(x))
        return output


class NanoGPT(nn.Module):
    """``block_size``: the longest sequence. ``bias``: of linear layers and norms, which nanoGPT omits."""

    def __init__(
        self,
        *,
        vocab_size: int,
        block_size: int,
        n_layer: int,
        n_head: int,
        n_embd: int,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList([Block(n_embd, n_head, dropout, bias) for _ in range(n_layer)])
        self.ln_f = LayerNorm(n_embd, bias)
        self.apply(_initialize)
        for name, weight in self.named_parameters():
            if name.endswith("c_proj.weight"):
                # 2 * n_layer of these add to the residual stream: their sum keeps its scale (GPT-2, 2.3)
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * n_layer))

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens`` (batch, time) to logits (batch, time, vocab_size); time <= block_size.

        All positions, also in inference, where nanoGPT computes the last one only.
        """
        positions = torch.arange(tokens.size(1), device=tokens.device)  # (time,)
        x = self.drop(self.wte(tokens) + self.wpe(positions))  # (batch, time, n_embd)
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)  # tied: no weight of its own


def _initialize(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
