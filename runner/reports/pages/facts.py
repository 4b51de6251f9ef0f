"""Facts of report.html's panels as printable text: names as words, values with units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from functools import lru_cache
from typing import Any

from harness.declared import finite
from harness.metrics import declared
from harness.schema import Scalar
from runner.analysis.digits import MISSING, seconds_text, significant, with_unit
from runner.labels import plain

RATES = {"flop": "FLOP/s", "bytes": "B/s"}

Facts = list[tuple[str, str]]


def settings(asked: Any, *, all_of_them: bool) -> Facts:
    """The fields of a dataclass that have a value: all, or only those that differ from the default."""
    facts: Facts = []
    for field in fields(asked):
        value = getattr(asked, field.name)
        if value in (None, "", (), {}) or (value == field.default and not all_of_them):
            continue
        seconds = isinstance(value, (int, float)) and field.name.endswith("_s")
        name, unit = (field.name.removesuffix("_s"), " s") if seconds else (field.name, "")
        facts.append((words(name), f"{_setting(value)}{unit}"))
    return facts


def _setting(value: object) -> str:
    """A setting as the user typed it, without added digits or separators."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, dict):
        return plain(", ".join(f"{name}={found}" for name, found in value.items()))
    return scalar(value)


def mapping(values: Mapping[str, Any]) -> Facts:
    return [_named(name, value) for name, value in values.items() if value not in (None, "")]


@lru_cache(maxsize=4096, typed=True)  # many values repeat; typed, because 1, 1.0 and True differ
def _named(name: str, value: Scalar) -> tuple[str, str]:
    """A metric's label, or its name as words, and its value with the unit."""
    metric = declared().by_name.get(name)
    if metric is not None and metric.label and not isinstance(value, bool):
        number = value if isinstance(value, str) else finite(value)
        return plain(metric.label), scalar(value) if number is None else with_unit(number, metric)
    if name.endswith("_per_s") and isinstance(value, (int, float)) and not isinstance(value, bool):
        before, _, unit = name.removesuffix("_per_s").rpartition("_")
        return words(before or unit), _rate(value, plain(unit))
    if isinstance(value, float) and math.isfinite(value) and name.endswith("_s"):
        return words(name.removesuffix("_s")), f"{seconds_text(value)} s"
    return words(name), scalar(value)


def _rate(value: float, unit: str) -> str:
    """``53.1 GFLOP/s``, ``210 switches/s``"""
    if unit not in RATES or not math.isfinite(value):
        return f"{significant(value, 3)} {unit}/s"
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{significant(value / size, 3)} {prefix}{RATES[unit]}"
    return f"{significant(value, 3)} {RATES[unit]}"


def scalar(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return plain(str(value.value))
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else str(value)
    if isinstance(value, float):
        return significant(value, 4) if abs(value) >= 1e-3 or not value else f"{value:.3g}"
    if isinstance(value, (tuple, list)):
        return ", ".join(scalar(item) for item in value)
    return lines(str(value))


def lines(text: str) -> str:
    """Text, possibly of several lines. Other unprintable characters become visible escapes."""
    if text.isprintable():  # nearly always
        return text
    return "\n".join(plain(line) for line in text.split("\n"))


@lru_cache(maxsize=4096)
def words(name: str) -> str:
    """``compile_cache_hits`` as words; names of environment variables stay unchanged."""
    return plain(name) if name.startswith("env.") else plain(name.replace("_", " "))


def text_of(value: float | None, text: Any) -> str:
    return MISSING if value is None else text(value)


def present(*facts: tuple[str, str, object]) -> Facts:
    """The facts that have a value."""
    return [(name, text) for name, text, value in facts if value is not None]
