"""GPT-2 (Radford et al., 2019) in the form that nanoGPT made common.

Pre-norm blocks, one fused projection to queries, keys and values, fused
attention, exact GELU, input and output embedding tied. Parameters carry
GPT-2's names (wte, wpe, c_attn, c_proj, c_fc), so that weights can be
compared with other implementations; the test does so with transformers'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class NanoGPTConfig:
    vocab_size: int
    block_size: int  # the longest sequence
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float = 0.0
    bias: bool = True  # in linear layers and layer norms; GPT-2 has them, nanoGPT's default has not


class LayerNorm(nn.Module):
    """``nn.LayerNorm`` with an optional bias, which torch itself has only from 2.1 on."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    def __init__(self, config: NanoGPTConfig) -> None:
        super().__init__()
        if config.n_embd % config.n_head:
            raise ValueError(f"n_embd {config.n_embd} is not a multiple of n_head {config.n_head}")
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.resid_dropout = nn.Dropout(config.dropout)

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
    def __init__(self, config: NanoGPTConfig) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        wide = functional.gelu(self.c_fc(x))  # (batch, time, 4 * n_embd)
        narrow: Tensor = self.dropout(self.c_proj(wide))  # (batch, time, n_embd)
        return narrow


class Block(nn.Module):
    def __init__(self, config: NanoGPTConfig) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(config.n_embd, config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = LayerNorm(config.n_embd, config.bias)
        self.mlp = FeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        output: Tensor = x + self.mlp(self.ln_2(x))
        return output


class NanoGPT(nn.Module):
    def __init__(self, config: NanoGPTConfig) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.drop = nn.Dropout(config.dropout)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = LayerNorm(config.n_embd, config.bias)
        self.apply(_initialize)
        for name, weight in self.named_parameters():
            if name.endswith("c_proj.weight"):
                # 2 * n_layer of these add to the residual stream: their sum keeps its scale (GPT-2, 2.3)
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * config.n_layer))

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
