"""Small language models: their losses, mean cross-entropy of the next symbol in nats, and two models."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from harness.loading.torchvision_ops import mend_torchvision


def every_symbol_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over all positions. ``logits`` (batch, time, vocabulary), ``target`` (batch, time)."""
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def last_symbol_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the last positions only. ``logits`` (batch, time, vocabulary), ``target`` (batch,)."""
    return functional.cross_entropy(logits[:, -1], target)


class MLP(nn.Module):
    """Reads ``input_len`` symbols: concatenates their embeddings, then Linear, ReLU, Linear."""

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


class HuggingFaceGPT(nn.Module):
    """The first GPT (Radford et al., 2018): ``OpenAIGPTModel`` of transformers and a head, not tied, no bias.

    ``block_size``: the longest sequence. ``dropout``: of embeddings, attention and residuals alike.
    """

    def __init__(
        self, *, vocab_size: int, block_size: int, n_layer: int, n_head: int, n_embd: int, dropout: float
    ) -> None:
        super().__init__()
        mend_torchvision()  # studies build this model without load_suite
        from transformers import OpenAIGPTConfig, OpenAIGPTModel

        self.transformer = OpenAIGPTModel(
            OpenAIGPTConfig(
                vocab_size=vocab_size,
                n_positions=block_size,
                n_layer=n_layer,
                n_head=n_head,
                n_embd=n_embd,
                embd_pdrop=dropout,
                attn_pdrop=dropout,
                resid_pdrop=dropout,
                summary_first_dropout=dropout,
            )
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens`` (batch, time) to logits (batch, time, vocab_size); time <= block_size."""
        logits: Tensor = self.lm_head(self.transformer(tokens).last_hidden_state)
        return logits
