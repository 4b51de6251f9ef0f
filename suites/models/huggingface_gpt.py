"""The first GPT (Radford et al., 2018) as transformers implements it, with a head of its own."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from harness.loading.torchvision_ops import mend_torchvision


@dataclass(frozen=True, kw_only=True)
class HuggingFaceGPTConfig:
    vocab_size: int
    block_size: int  # the longest sequence; transformers' n_positions
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float = 0.1  # of embeddings, attention and residuals alike


class HuggingFaceGPT(nn.Module):
    """``OpenAIGPTModel`` and a linear head that is neither tied to the embedding nor biased."""

    def __init__(self, config: HuggingFaceGPTConfig) -> None:
        super().__init__()
        mend_torchvision()  # studies build this model without load_suite
        from transformers import OpenAIGPTConfig, OpenAIGPTModel

        self.transformer = OpenAIGPTModel(
            OpenAIGPTConfig(
                vocab_size=config.vocab_size,
                n_positions=config.block_size,
                n_layer=config.n_layer,
                n_head=config.n_head,
                n_embd=config.n_embd,
                embd_pdrop=config.dropout,
                attn_pdrop=config.dropout,
                resid_pdrop=config.dropout,
                summary_first_dropout=config.dropout,
            )
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """``tokens`` (batch, time) to logits (batch, time, vocab_size); time <= block_size."""
        logits: Tensor = self.lm_head(self.transformer(tokens).last_hidden_state)
        return logits
