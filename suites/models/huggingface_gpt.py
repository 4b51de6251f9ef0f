"""The first GPT (Radford et al., 2018) as transformers implements it, with a head of its own."""

from __future__ import annotations

from torch import Tensor, nn

from harness.loading.torchvision_ops import mend_torchvision


class HuggingFaceGPT(nn.Module):
    """``OpenAIGPTModel`` and a linear head that is neither tied to the embedding nor biased.

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
