"""A multilayer perceptron that reads a fixed number of symbols and predicts the next ones."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class MLPConfig:
    vocab_size: int
    input_len: int  # symbols read, always exactly this many
    n_embd: int
    n_hidden: int
    output_len: int = 1  # symbols predicted


class MLP(nn.Module):
    """Embeds each symbol, concatenates the embeddings, then Linear, ReLU, Linear."""

    def __init__(self, config: MLPConfig) -> None:
        super().__init__()
        self.vocab_size = config.vocab_size
        self.output_len = config.output_len
        self.embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.hidden = nn.Linear(config.input_len * config.n_embd, config.n_hidden)
        self.head = nn.Linear(config.n_hidden, config.output_len * config.vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens`` (batch, input_len) to logits (batch, output_len, vocab_size)."""
        x = self.embedding(tokens).flatten(1)  # (batch, input_len * n_embd)
        x = functional.relu(self.hidden(x))  # (batch, n_hidden)
        logits: Tensor = self.head(x)  # (batch, output_len * vocab_size)
        return logits.view(tokens.size(0), self.output_len, self.vocab_size)
