"""Task 1 of study B: additions and subtractions as sequences of symbols."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

SYMBOLS = "0123456789.=+-m|"
"""``m`` is unary minus, ``|`` ends a sequence. The token of a symbol is its index; padding is token 0."""

LEFT_DIGITS, RESULT_DIGITS = 3, 4
DRAWN, HELD_OUT = 100_000, 4096
MINUS, END = "m", "|"


def generate(x: int, operation: str, y: int, *, left_digits: int = LEFT_DIGITS, reverse: bool = False) -> str:
    """``123+456=0579|``, or with ``reverse`` the digits of every number reversed: ``321+654=9750|``.

    A minus counts as a digit and is always first: ``123-999=m876|``. ``ValueError`` for operations
    other than + and -, and for operands that are negative or too long.
    """
    if operation not in ("+", "-"):
        raise ValueError(f"{operation!r} is not an operation; use + or -")
    if not (0 <= x < 10**left_digits and 0 <= y < 10**left_digits):
        raise ValueError(f"{x} and {y} must have at most {left_digits} digits and no sign")
    result = x + y if operation == "+" else x - y
    shown = [
        _number(value, width, reverse)
        for value, width in ((x, left_digits), (y, left_digits), (result, RESULT_DIGITS))
    ]
    return f"{shown[0]}{operation}{shown[1]}={shown[2]}{END}"


def _number(value: int, width: int, reverse: bool) -> str:
    sign = MINUS if value < 0 else ""
    digits = str(abs(value)).zfill(width - len(sign))
    return sign + (digits[::-1] if reverse else digits)


def encode(text: str) -> list[int]:
    """The tokens of the text. ``ValueError`` for a character outside ``SYMBOLS``."""
    return [SYMBOLS.index(symbol) for symbol in text]


def examples(sequence: str) -> list[tuple[list[int], int]]:
    """An example for each symbol of the result: the preceding tokens, padded in front, and the next token.

    ``321+654=9750|`` gives five examples, from (0000321+654=, 9) to (321+654=9750, |).
    """
    tokens = encode(sequence)
    known = sequence.index("=") + 1
    length = len(sequence) - 1
    return [([0] * (length - place) + tokens[:place], tokens[place]) for place in range(known, len(tokens))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    """Examples as tensors: inputs (n, 12) and targets (n,). No addition is in both parts."""

    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor


def additions(*, seed: int, reverse: bool = True, drawn: int = DRAWN, held_out: int = HELD_OUT) -> Additions:
    """Draws ``drawn`` additions of numbers in 0...999, drops duplicates, and holds out ``held_out``."""
    source = random.Random(seed)
    top = 10**LEFT_DIGITS
    pairs = list(dict.fromkeys((source.randrange(top), source.randrange(top)) for _ in range(drawn)))
    test = _tensors(pairs[:held_out], reverse)  # the order is random already
    train = _tensors(pairs[held_out:], reverse)
    return Additions(train_inputs=train[0], train_targets=train[1], test_inputs=test[0], test_targets=test[1])


def _tensors(pairs: list[tuple[int, int]], reverse: bool) -> tuple[Tensor, Tensor]:
    import torch

    found = [example for x, y in pairs for example in examples(generate(x, "+", y, reverse=reverse))]
    return torch.tensor([given for given, _ in found]), torch.tensor([target for _, target in found])
