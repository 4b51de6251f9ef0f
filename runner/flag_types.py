"""What the values of flags may be; anything else ends in a sentence that names the flag."""

from __future__ import annotations

import math
from collections.abc import Callable

from runner.errors import UsageError


def count(flag: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = whole(flag)(text)
        if value < 1:
            raise UsageError(f"{flag}: {text} is too small; give a whole number from 1 up")
        return value

    return parse


def whole(flag: str) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise UsageError(f"{flag}: {text!r} is not a whole number") from None
        if value < 0:
            raise UsageError(f"{flag}: {text} is negative; give a whole number from 0 up")
        if value >= 2**63:
            raise UsageError(f"{flag}: {text} is too large")
        return value

    return parse


def seconds(flag: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise UsageError(f"{flag}: {text!r} is not a number of seconds") from None
        if not (0 < value < math.inf):
            raise UsageError(f"{flag}: {text} is not a time; give seconds above 0")
        return value

    return parse


def duration(flag: str) -> Callable[[str], float]:
    """``90``, ``90s``, ``30m`` or ``1.5h``, as seconds."""

    def parse(text: str) -> float:
        stripped = text.strip().lower()
        unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(stripped[-1:])
        try:
            value = float(stripped if unit is None else stripped[:-1]) * (unit or 1.0)
        except ValueError:
            raise UsageError(f"{flag}: {text!r} is not a time; write for example 30m, 90s or 2h") from None
        if not (0 < value < math.inf):
            raise UsageError(f"{flag}: {text} is not a time above 0; write for example 30m, 90s or 2h")
        return value

    return parse


def share(flag: str) -> Callable[[str], float]:
    """``2%`` or ``0.02``; a bare ``2`` is refused rather than guessed at."""

    def parse(text: str) -> float:
        stripped = text.strip()
        percent = stripped.endswith("%")
        try:
            value = float(stripped.removesuffix("%")) / (100 if percent else 1)
        except ValueError:
            raise UsageError(f"{flag}: {text!r} is not a share; write for example 2%") from None
        if not (0 < value < 1):
            raise UsageError(f"{flag}: {text!r} is not between 0 and 100 %; write for example 2% or 0.02")
        if value < 1e-6:
            raise UsageError(f"{flag}: {text!r} is finer than any clock; give 0.0001% or more")
        return value

    return parse


def gigabytes(flag: str) -> Callable[[str], int]:
    """Gigabytes (10^9 bytes), ``8`` or ``1.5``, as bytes."""

    def parse(text: str) -> int:
        try:
            value = float(text.strip().upper().removesuffix("GB"))
        except ValueError:
            raise UsageError(f"{flag}: {text!r} is not a number of gigabytes; write for example 8") from None
        if not (0 < value < 1e6):
            raise UsageError(f"{flag}: {text} is not an amount of memory; give gigabytes above 0")
        return int(value * 1e9)

    return parse
