"""Task 1 of study B: additions and subtractions as sequences of symbols."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from studies.options import LEFT_DIGITS, OPERATIONS

if TYPE_CHECKING:
    from torch import Tensor

SYMBOLS = "0123456789.=+-m|"
"""``m`` is unary minus, ``|`` ends a sequence. The token of a symbol is its index; padding is token 0."""

DRAWN, HELD_OUT = 100_000, 4096
LARGEST_TEST_SHARE = 0.9
MINUS, END = "m", "|"
Part = tuple["Tensor", "Tensor"]


def generate(x: int, operation: str, y: int, *, digits: int = LEFT_DIGITS, reverse: bool = False) -> str:
    """``123+456=0579|``, or with ``reverse`` every number written backwards: ``321+654=9750|``.

    A result has a digit more: it holds every sum, and every difference with its minus: ``123-999=m876|``,
    and backwards ``321-999=678m|``. ``ValueError`` for operations other than + and -, and for operands that
    are negative or too long.
    """
    if operation not in OPERATIONS:
        raise ValueError(f"{operation!r} is not an operation; use + or -")
    if not (0 <= x < 10**digits and 0 <= y < 10**digits):
        raise ValueError(f"{x} and {y} must have at most {digits} digits and no sign")
    result = x + y if operation == "+" else x - y
    left = [_number(value, digits, reverse) for value in (x, y)]
    return f"{left[0]}{operation}{left[1]}={_number(result, digits + 1, reverse)}{END}"


def _number(value: int, width: int, reverse: bool) -> str:
    sign = MINUS if value < 0 else ""
    text = sign + str(abs(value)).zfill(width - len(sign))
    return text[::-1] if reverse else text


def input_length(digits: int) -> int:
    """The symbols that a model reads: two numbers, two signs and the longer result. ``3`` to ``12``."""
    return 2 * digits + 2 + digits + 1


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


def additions(
    *,
    seed: int,
    reverse: bool = True,
    drawn: int = DRAWN,
    held_out: int = HELD_OUT,
    operations: Sequence[str] = ("+",),
    digits: int = LEFT_DIGITS,
) -> tuple[Part, Part]:
    """Inputs (n, 12) and targets (n,) for training, and those of ``held_out`` other questions.

    Draws ``drawn`` questions without duplicates. ``digits``: of both numbers. ``ValueError`` if less than a
    tenth would be left for training.
    """
    import torch

    source, top = random.Random(seed), 10**digits

    def question() -> tuple[int, str, int]:
        sign = operations[0] if len(operations) == 1 else source.choice(operations)
        return source.randrange(top), sign, source.randrange(top)

    questions = list(dict.fromkeys(question() for _ in range(drawn)))  # in a random order
    if held_out >= LARGEST_TEST_SHARE * len(questions):
        raise ValueError(
            f"{held_out:,} of {len(questions):,} different questions cannot be held out: less than a tenth "
            "would be left for training"
        )

    def tensors(asked: Sequence[tuple[int, str, int]]) -> Part:
        texts = (generate(*question, digits=digits, reverse=reverse) for question in asked)
        inputs, targets = zip(*(pair for text in texts for pair in examples(text)), strict=True)
        return torch.tensor(inputs), torch.tensor(targets)

    return tensors(questions[held_out:]), tensors(questions[:held_out])
