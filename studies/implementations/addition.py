"""Task 1 of study B: additions and subtractions as sequences of symbols."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from studies.options import LEFT_DIGITS

if TYPE_CHECKING:
    from torch import Tensor

SYMBOLS = "0123456789.=+-m|"
"""``m`` is unary minus, ``|`` ends a sequence. The token of a symbol is its index; padding is token 0."""

DRAWN, HELD_OUT = 100_000, 4096
Part = tuple["Tensor", "Tensor"]


def generate(x: int, operation: str, y: int, *, digits: int = LEFT_DIGITS) -> str:
    """``321+654=9750|`` for 123 + 456: every number is written backwards.

    A result has a digit more: it holds every sum, and every difference with its minus: ``321-999=678m|``.
    """
    result = x + y if operation == "+" else x - y
    left, right = (str(value).zfill(digits)[::-1] for value in (x, y))
    sign = "m" if result < 0 else ""
    return f"{left}{operation}{right}={str(abs(result)).zfill(digits + 1 - len(sign))[::-1]}{sign}|"


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
    drawn: int = DRAWN,
    held_out: int = HELD_OUT,
    operations: Sequence[str] = ("+",),
    digits: int = LEFT_DIGITS,
) -> tuple[Part, Part]:
    """Inputs (n, 12) and targets (n,) for training, and those of ``held_out`` other questions.

    Draws ``drawn`` questions without duplicates. ``digits``: of both numbers.
    """
    import torch

    source, top = random.Random(seed), 10**digits

    def question() -> tuple[int, str, int]:
        sign = operations[0] if len(operations) == 1 else source.choice(operations)  # as in older runs
        return source.randrange(top), sign, source.randrange(top)

    questions = list(dict.fromkeys(question() for _ in range(drawn)))  # in a random order

    def tensors(asked: Sequence[tuple[int, str, int]]) -> Part:
        texts = (generate(*question, digits=digits) for question in asked)
        inputs, targets = zip(*(pair for text in texts for pair in examples(text)), strict=True)
        return torch.tensor(inputs), torch.tensor(targets)

    return tensors(questions[held_out:]), tensors(questions[:held_out])
