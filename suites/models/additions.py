"""Additions as sequences of 13 symbols: something to learn for models with any larger vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

DIGITS = 3  # of both numbers
PLUS, EQUALS, END = 10, 11, 12  # after the ten digits
SYMBOLS = 3 * DIGITS + 4  # of an addition: 123 + 456 = 579 is 3 2 1 + 6 5 4 = 9 7 5 0 |
RESULT = 2 * DIGITS + 2  # the place of the result


def additions(batch: int, length: int, seed: int) -> Tensor:
    """(batch, length): windows of random additions, one after the other, which end in a result.

    Every number is written backwards, as in study B, so that a result can be computed digit by digit.
    """
    generator = torch.Generator().manual_seed(seed)
    count = length // SYMBOLS + 2
    x, y = torch.randint(10**DIGITS, (2, batch, count, 1), generator=generator)
    places = 10 ** torch.arange(DIGITS + 1)
    signs = (torch.full_like(x, sign) for sign in (PLUS, EQUALS, END))
    plus, equals, end = signs
    digits = [number // places % 10 for number in (x, y, x + y)]
    parts = (digits[0][..., :DIGITS], plus, digits[1][..., :DIGITS], equals, digits[2], end)
    text = torch.cat(parts, dim=-1).flatten(1)  # (batch, count * SYMBOLS)
    last = torch.randint(RESULT, SYMBOLS, (batch, 1), generator=generator) + SYMBOLS * (count - 1)
    return text.gather(1, last - length + 1 + torch.arange(length))
