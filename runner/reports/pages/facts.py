"""Facts of report.html's panels as printable text: names as words, values with units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from functools import cache, lru_cache
from typing import Any

from harness.schema import Scalar
from runner.analysis.columns import Column, columns
from runner.analysis.digits import significant, with_unit
from runner.analysis.results import Comparison
from runner.labels import plain
from runner.reports.parts.grid import plain_lines

OF_SPEEDUP = ("speedup", "ci_low", "ci_high")
UNIT_IN_NAME = re.compile(r"_((t?flop|bytes|gb|tokens)_per_s|per_s|bytes|gb|mhz|ms|s)$")

Facts = list[tuple[str, str]]


def of_group(comparison: Comparison, *groups: str) -> Facts:
    """The columns of these groups that have a value."""
    facts: Facts = []
    for column in _columns(groups):
        if (value := column.value(comparison)) is not None:
            facts.append(_named(column.name, value, column.unit, column.digits))
    return facts


@cache
def _columns(groups: tuple[str, ...]) -> tuple[Column[Comparison], ...]:
    """Without the speedup, which is a fact of its own, with its interval."""
    return tuple(c for c in columns().values() if c.group in groups and c.name not in OF_SPEEDUP)


def mapping(values: Mapping[str, Any]) -> Facts:
    """Numbers and texts that no column declares."""
    return [_named(name, value) for name, value in values.items() if value not in (None, "")]


@lru_cache(maxsize=4096, typed=True)  # many values repeat; typed, because 1, 1.0 and True differ
def _named(name: str, value: Scalar, unit: str = "", digits: int = 4) -> tuple[str, str]:
    """The name as words, and the value with its unit, which the name may have in its end."""
    if isinstance(value, (str, bool)) or not unit:
        return words(name), scalar(value)
    return words(UNIT_IN_NAME.sub("", name)), with_unit(value or 0.0, unit, digits)


def settings(holder: Any, *, all_of_them: bool) -> Facts:
    """The fields of a dataclass that have a value: all, or only those that differ from the default."""
    facts: Facts = []
    for field in fields(holder):
        value = getattr(holder, field.name)
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
        return plain(", ".join(f"{name}={part}" for name, part in value.items()))
    return scalar(value)


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
    return plain_lines(str(value))


@lru_cache(maxsize=4096)
def words(name: str) -> str:
    """``compile_cache_hits`` as words; names of environment variables stay unchanged."""
    return plain(name) if name.startswith("env.") else plain(name.replace("_", " "))
