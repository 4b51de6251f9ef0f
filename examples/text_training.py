"""A small language model that reads a text file of your own, for --trajectory.

Take any text of 10,000 characters or more, such as the works of Shakespeare:

TEXT=shakespeare.txt python runner.py --training --model=examples/text_training.py:make --trajectory=200
"""

import os
from pathlib import Path

import torch
from torch import nn

BATCH, LENGTH, WIDTH = 8, 64, 64


class Reader(nn.Module):
    """Embedding, two layers of attention, and the next symbol at each place."""

    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.symbols, self.places = nn.Embedding(symbols, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, symbols)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x = self.symbols(text) + self.places.weight  # (batch, LENGTH, WIDTH)
        return self.head(self.layers(x, mask=self.mask, is_causal=True))  # type: ignore[no-any-return]


def loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def make() -> tuple[object, ...]:
    """Module, inputs, loss and target, as for every model; and the batch of each step."""
    text = Path(os.environ["TEXT"]).read_text(encoding="utf-8")
    known = sorted(set(text))
    symbols = torch.tensor([known.index(symbol) for symbol in text])

    def batches(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(step)
        starts = torch.randint(len(symbols) - LENGTH, (BATCH, 1), generator=generator)
        places = starts + torch.arange(LENGTH)
        return symbols[places], symbols[places + 1]

    inputs, target = batches(0)
    return Reader(len(known)), inputs, loss, target, batches
