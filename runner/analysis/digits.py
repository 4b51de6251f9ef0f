"""Numbers as text, with only the digits that the data supports.

The functions take numbers; the caller shows ``MISSING`` for a missing number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.analysis.results import Estimate
    from runner.analysis.verdicts import BreakEven

MISSING = "-"
MAX_DECIMALS = 4
SMALLEST_P = 0.001
TWO_DIGITS = 10.0
UNKNOWN = 1000.0  # times: so wide is the interval of two values that agree badly
UNNAMED = ("", "text", "ratio", "share", "bytes", "GB", "p", "df", "correlation", "error")
"""Units without a name in a text, or whose text has it."""
PREFIXED: Mapping[str, str] = MappingProxyType({"FLOP": "FLOP", "FLOP/s": "FLOP/s", "bytes/s": "B/s"})
PREFIXES = (("T", 1e12), ("G", 1e9), ("M", 1e6))


def significant(value: float, digits: int) -> str:
    """``value`` with ``digits`` significant digits and thousands separators: 0.0123, 12.3, 1,230."""
    if not math.isfinite(value):
        return str(value)
    rounded = f"{value:.{digits - 1}e}"
    exponent = int(rounded.split("e")[1])
    decimals = max(0, digits - 1 - exponent) if value else 0
    return f"{float(rounded):,.{decimals}f}"


def speedup_text(value: float | None, low: float | None, high: float | None) -> str:
    """``1.23x [1.20, 1.26]``: the decimals show one digit of the interval's half-width.

    They show two digits if the first is 1, because one digit alone would be rounded by up to half.
    The half-width is computed from logarithms, as the interval is. A speedup below 10 keeps its
    first decimal. Without an interval, the speedup has two significant digits: ``1.2x``.
    """
    if value is None:
        return MISSING
    if low is None or high is None:
        return f"{significant(value, 2)}x"
    return interval_text(value, low, high, "x")


def estimate_text(estimate: Estimate | None) -> str:
    return MISSING if estimate is None else speedup_text(estimate.factor, estimate.low, estimate.high)


def interval_text(value: float, low: float, high: float, unit: str = "") -> str:
    """``9.12 [8.80, 9.45]``, with the digits of ``speedup_text``.

    ``9 [unknown]``, if the ends of the interval differ by more than a factor of ``UNKNOWN``.
    """
    if high > UNKNOWN * low:
        return f"{significant(value, 1)}{unit} [unknown]"
    half_width = value * math.log(high / low) / 2 if low > 0 else math.inf
    decimals = max(_decimals(half_width), 1 if value < TWO_DIGITS else 0)
    low_text = f"{low:,.{decimals}f}" if round(low, decimals) else significant(low, 1)  # no ratio is 0
    return f"{value:,.{decimals}f}{unit} [{low_text}, {high:,.{decimals}f}]"


def _decimals(half_width: float) -> int:
    if not half_width > 0:
        return MAX_DECIMALS
    if not math.isfinite(half_width):
        return 0
    first_digit, exponent = f"{half_width:.0e}".split("e")
    decimals = -int(exponent) + (1 if first_digit == "1" else 0)
    return min(max(decimals, 0), MAX_DECIMALS)


ms_text = partial(significant, digits=3)


def seconds_text(value: float) -> str:
    """Seconds of a single measurement: three significant digits, no digit below a millisecond."""
    return significant(value, 3) if value >= 1 else f"{value:.3f}"


ratio_text = "{:.2f}x".format  # as dashboards print averages


def memory_text(gigabytes: float) -> str:
    """``1.39 GB``, ``91.0 kB``: three significant digits, in a unit without leading zeros."""
    for unit, size in (("GB", 1.0), ("MB", 1e-3)):
        if gigabytes >= size:
            return f"{significant(gigabytes / size, 3)} {unit}"
    return f"{significant(gigabytes * 1e6, 3)} kB"


def p_text(value: float) -> str:
    """``<0.001``, or two significant digits."""
    return f"<{SMALLEST_P}" if value < SMALLEST_P else f"{value:#.2g}"


def steps_text(value: float) -> str:
    """Break-even steps: two significant digits with thousands separators, ``never``, or ``0`` below one."""
    return "never" if math.isinf(value) else significant(value, 2) if value >= 1 else "0"


def break_even_text(even: BreakEven) -> str:
    """``5,500 [4,100, 7,300]``; ``never``, if the whole interval is.

    Not ``whole``: without the spread of the compilation the interval is too narrow: ``5,500``, and
    ``over 1,200`` where it may never pay.
    """
    if math.isinf(even.low):
        return steps_text(even.low)
    if even.whole:
        return f"{steps_text(even.steps)} [{steps_text(even.low)}, {steps_text(even.high)}]"
    return f"over {steps_text(even.low)}" if math.isinf(even.high) else steps_text(even.steps)


def share_text(value: float) -> str:
    """A share in percent: ``2 %``. No share below 1 is rounded to 100 %."""
    return f"{value * 100 if value >= 1.0 else min(value * 100, 99.9):.3g} %"


def number_text(value: float | str, unit: str, digits: int = 3) -> str:
    """A number in the digits of its unit, or with ``digits`` significant digits, without the unit's name."""
    if isinstance(value, str):
        return value
    units: dict[str, Callable[[float], str]] = {
        "s": seconds_text,
        "ratio": ratio_text,
        "share": share_text,
        "p": p_text,
        "steps": steps_text,
        "GB": memory_text,
        "bytes": lambda size: memory_text(size / 1e9),
        **dict.fromkeys(("error", "ULP", "nats"), "{:.3g}".format),
        "dB": "{:.1f}".format,
        "cosine": "{:.6f}".format,
    }
    return units[unit](value) if unit in units else significant(value, digits)


def with_unit(value: float | str, unit: str, digits: int = 3) -> str:
    """``number_text`` with the name of the unit: ``12.3 ms``, ``53.1 GFLOP/s``, ``210/s``"""
    if unit in UNNAMED or isinstance(value, str):
        return number_text(value, unit, digits)
    if unit == "1/s":
        return f"{significant(value, digits)}/s"
    prefix, size = "", 1.0
    if unit in PREFIXED:
        prefix, size = next(((p, size) for p, size in PREFIXES if abs(value) >= size), ("", 1.0))
    return f"{number_text(value / size, unit, digits)} {prefix}{PREFIXED.get(unit, unit)}"
