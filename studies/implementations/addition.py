"""Task 1 of study B: additions and subtractions as sequences of symbols."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

SYMBOLS = "0123456789.=+-m|"
"""``m`` is unary minus, ``|`` ends a sequence. The token of a symbol is its index; padding is token 0."""

LEFT_DIGITS, RESULT_DIGITS = 3, 4
DRAWN, HELD_OUT = 100_000, 4096
LARGEST_TEST_SHARE = 0.9
MINUS, END = "m", "|"
OPERATIONS = ("+", "-")


def generate(
    x: int,
    operation: str,
    y: int,
    *,
    left_digits: int = LEFT_DIGITS,
    result_digits: int = RESULT_DIGITS,
    reverse: bool = False,
) -> str:
    """``123+456=0579|``, or with ``reverse`` every number written backwards: ``321+654=9750|``.

    The minus of a result counts as one of its digits: ``123-999=m876|``, and backwards ``321-999=678m|``.
    ``ValueError`` for operations other than + and -, for operands that are negative or too long, and for
    a result that is too long.
    """
    if operation not in OPERATIONS:
        raise ValueError(f"{operation!r} is not an operation; use + or -")
    if not (0 <= x < 10**left_digits and 0 <= y < 10**left_digits):
        raise ValueError(f"{x} and {y} must have at most {left_digits} digits and no sign")
    result = x + y if operation == "+" else x - y
    left = [_number(value, left_digits, reverse) for value in (x, y)]
    right = _number(result, result_digits, reverse)
    if len(right) > result_digits:
        raise ValueError(f"{result} does not fit into the {result_digits} digits of a result")
    return f"{left[0]}{operation}{left[1]}={right}{END}"


def _number(value: int, width: int, reverse: bool) -> str:
    sign = MINUS if value < 0 else ""
    text = sign + str(abs(value)).zfill(width - len(sign))
    return text[::-1] if reverse else text


def result_width(digits: int) -> int:
    """The digits of a result that hold every sum, and every difference with its minus: ``3`` to ``4``."""
    return digits + 1


def input_length(digits: int) -> int:
    """The symbols that a model reads: two numbers, two signs and the result. ``3`` to ``12``."""
    return 2 * digits + 2 + result_width(digits)


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
    """Examples as tensors: inputs (n, 12) and targets (n,). No question is in both parts."""

    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor


def additions(
    *,
    seed: int,
    reverse: bool = True,
    drawn: int = DRAWN,
    held_out: int = HELD_OUT,
    operations: Sequence[str] = ("+",),
    digits: int = LEFT_DIGITS,
) -> Additions:
    """Draws ``drawn`` questions, drops duplicates, and holds out ``held_out``. ``digits``: of both numbers.

    ``ValueError`` if less than a tenth would be left for training.
    """
    source = random.Random(seed)
    top = 10**digits

    def question() -> tuple[int, str, int]:
        sign = operations[0] if len(operations) == 1 else source.choice(operations)
        return source.randrange(top), sign, source.randrange(top)

    questions = list(dict.fromkeys(question() for _ in range(drawn)))
    if held_out >= LARGEST_TEST_SHARE * len(questions):
        raise ValueError(
            f"{held_out:,} of {len(questions):,} different questions cannot be held out: less than a tenth "
            "would be left for training"
        )
    test = _tensors(questions[:held_out], reverse, digits)  # the order is random already
    train = _tensors(questions[held_out:], reverse, digits)
    return Additions(train_inputs=train[0], train_targets=train[1], test_inputs=test[0], test_targets=test[1])


def _tensors(questions: list[tuple[int, str, int]], reverse: bool, digits: int) -> tuple[Tensor, Tensor]:
    import torch

    found = [
        example
        for x, operation, y in questions
        for example in examples(
            generate(x, operation, y, left_digits=digits, result_digits=result_width(digits), reverse=reverse)
        )
    ]
    return torch.tensor([given for given, _ in found]), torch.tensor([target for _, target in found])
