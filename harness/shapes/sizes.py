"""``--shapes AXIS=SIZES``: a stream of calls of one model, each with inputs of its size.

sequence=64,128,96             these sizes, one call each; sequence=64,128,96:50: again from the first
sequence=100:+-20%:50          50 whole numbers, uniform within 20 % of 100, drawn from the seed
sequence=FILE                  a file with one size a line
.../96,128                     the sizes that the strategy *padded* pads to (else powers of two)
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.settings import no_such, whole

if TYPE_CHECKING:
    from harness.schema import Case

STATIC, AUTOMATIC, DYNAMIC, MARKED, PADDED = "static", "automatic", "dynamic", "marked", "padded"
STRATEGIES = (STATIC, AUTOMATIC, DYNAMIC, MARKED, PADDED)

AXES = ("batch", "sequence")
CALLS, MOST_CALLS = 50, 1000
SPREAD = re.compile(r"(\d{1,12}):\+-(\d{1,2})%(?::(\d{1,12}))?")
EXAMPLES = "write for example sequence=64,128,96, batch=16:+-20%:50 or sequence=FILE"


def spec(text: str) -> str:
    """The text in its own form: a file's sizes are a list. ``ValueError`` with a sentence."""
    axis, equals, values = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} names no axis; {EXAMPLES}")
    if axis not in AXES:
        raise ValueError(no_such(axis, "axis", AXES))
    if _is_file(values):
        lines = Path(values).read_text(encoding="utf-8", errors="replace").splitlines()
        words = [(number, word) for number, line in enumerate(lines, 1) for word in line.split()]
        if not words:
            raise ValueError(f"the file {values!r} is empty; write one size a line")
        for number, word in words:
            if not word.isdigit():
                raise ValueError(f"line {number} of {values!r} is {word!r}; write one size a line")
        values = ",".join(word for _, word in words)
    elif values and not values[0].isdigit():
        raise ValueError(f"there is no file {values!r}; {EXAMPLES}")
    text = f"{axis}={values}"
    calls, pads, spread = calls_of(text, 0), pads_of(text), _spread(text)
    if len(calls) > MOST_CALLS:
        raise ValueError(f"these are more than {MOST_CALLS} calls")
    largest = max(calls) if spread is None else spread[1]  # another seed may draw it
    if pads and max(pads) < largest:
        raise ValueError(f"no size to pad to is as large as {largest}")
    return text


def _is_file(values: str) -> bool:
    try:
        return Path(values).is_file()
    except OSError:  # a long list is no name of a file
        return False


def calls_of(text: str, seed: int) -> tuple[int, ...]:
    """The size of each call."""
    spread = _spread(text)
    if spread is not None:
        low, high, calls = spread
        draw = random.Random(seed)
        return tuple(draw.randint(low, high) for _ in range(calls))
    listed, _, count = _values(text).partition(":")
    if not listed:
        raise ValueError(f"{text!r} has no sizes; {EXAMPLES}")
    sizes = [whole(word, least=1) for word in listed.split(",")]
    number = min(_count(count, len(sizes)), MOST_CALLS + 1)
    return tuple(sizes[place % len(sizes)] for place in range(number))


def _values(text: str) -> str:
    return text.partition("=")[2].partition("/")[0]


def _spread(text: str) -> tuple[int, int, int] | None:
    """The smallest and largest size that may be drawn, and the number of calls; None: sizes are listed."""
    spread = SPREAD.fullmatch(_values(text))
    if spread is None and "+-" in text:
        raise ValueError(f"{_values(text)!r} is no size with a spread of at most 99 %; {EXAMPLES}")
    if spread is None:
        return None
    middle, share = whole(spread[1], least=1), int(spread[2]) / 100
    low, high = max(1, round(middle * (1 - share))), round(middle * (1 + share))
    return low, high, min(_count(spread[3], CALLS), MOST_CALLS + 1)


def _count(text: str | None, default: int) -> int:
    return whole(text, least=2) if text else default


def pads_of(text: str) -> tuple[int, ...]:
    """The stated sizes to pad to; () for powers of two."""
    stated = text.partition("/")[2]
    return tuple(sorted(whole(word, least=1) for word in stated.split(","))) if stated else ()


def padded(text: str, size: int, largest: int) -> int:
    """The size to which an input of this size is padded; powers of two end at the ``largest`` size."""
    pads = pads_of(text)
    if pads:
        return next(pad for pad in pads if pad >= size)
    return min(largest, 1 << (size - 1).bit_length())


def sizes_run(text: str, seed: int, strategy: str) -> tuple[int, ...]:
    """The size of the inputs of each call of this strategy."""
    calls = calls_of(text, seed)
    if strategy != PADDED:
        return calls
    return tuple(padded(text, size, max(calls)) for size in calls)


def case_at(case: Case, text: str, size: int) -> Case:
    if text.startswith("batch="):
        return replace(case, batch_size=size)
    return replace(case, sequence=size)


def largest_case(case: Case, text: str, seed: int) -> Case:
    """The case at the size at which the one model is built, which every strategy runs."""
    return case_at(case, text, max(*calls_of(text, seed), *pads_of(text), 1))
