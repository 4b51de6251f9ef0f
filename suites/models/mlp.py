"""A multilayer perceptron that reads a fixed number of symbols and predicts the next ones."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class MLP(nn.Module):
    """Embeds each symbol, concatenates the embeddings, then Linear, ReLU, Linear.

    It reads exactly ``input_len`` symbols.
    """

    def __init__(self, *, vocab_size: int, input_len: int, n_embd: int, n_hidden: int) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.embedding = nn.Embedding(vocab_size, n_embd)
        self.hidden = nn.Linear(input_len * n_embd, n_hidden)
        self.head = nn.Linear(n_hidden, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens`` (batch, input_len) to logits (batch, 1, vocab_size)."""
        x = self.embedding(tokens).flatten(1)  # (batch, input_len * n_embd)
        x = functional.relu(self.hidden(x))  # (batch, n_hidden)
        logits: Tensor = self.head(x)  # (batch, vocab_size)
        return logits.view(tokens.size(0), 1, self.vocab_size)
