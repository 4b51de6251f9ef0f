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
from runner.analysis.digits import with_unit
from runner.analysis.results import Comparison
from runner.labels import plain
from runner.reports.parts.grid import plain_lines

UNIT_IN_NAME = re.compile(r"_((t?flop|bytes|gb|tokens)_per_s|per_s|bytes|gb|mhz|ms|s)$")
Facts = list[tuple[str, str]]


def of_group(comparison: Comparison, *groups: str) -> Facts:
    """The columns of these groups that have a value."""
    known = ((column, column.value(comparison)) for column in _columns(groups))
    return [_fact(column, value, comparison) for column, value in known if value is not None]


def _fact(column: Column[Comparison], value: Any, comparison: Comparison) -> tuple[str, str]:
    if column.header and column.unit == "ratio":  # it has its interval, or stands in tables
        return column.header.replace("\n", " "), column.cell(comparison)
    return _named(column.name, value, column.unit, column.digits)


@cache
def _columns(groups: tuple[str, ...]) -> tuple[Column[Comparison], ...]:
    return tuple(column for column in columns().values() if column.group in groups)


def mapping(values: Mapping[str, Any]) -> Facts:
    """Values that no column declares, as the user typed them. Those in seconds have their unit."""
    return [_value(*named) for named in values.items() if named[1] not in (None, "", (), {})]


def _value(name: str, value: object) -> tuple[str, str]:
    if name.endswith("_s") and isinstance(value, (int, float)):
        return words(name[:-2]), f"{scalar(value)} s"
    return words(name), scalar(value)


def settings(holder: Any, *, every: bool = False) -> Facts:
    """The fields of a dataclass: ``every``, or those that no column has and that differ from the default."""
    told = {
        field.name: getattr(holder, field.name)
        for field in fields(holder)
        if every or (field.name not in columns() and getattr(holder, field.name) != field.default)
    }
    return mapping(told)


@lru_cache(maxsize=4096, typed=True)  # many values repeat; typed, because 1, 1.0 and True differ
def _named(name: str, value: Scalar, unit: str, digits: int) -> tuple[str, str]:
    """The name as words, and the value with its unit, which the name may have in its end."""
    if unit and isinstance(value, (int, float)) and not isinstance(value, bool):
        return words(UNIT_IN_NAME.sub("", name)), with_unit(value, unit, digits)
    return words(name), f"{value:,}" if type(value) is int else scalar(value)


def scalar(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        value = tuple(f"{name}={part}" for name, part in value.items())
    if isinstance(value, (tuple, list)):
        return ", ".join(map(scalar, value))
    return plain_lines(str(value.value if isinstance(value, Enum) else value))


def words(name: str) -> str:
    """``compile_cache_hits`` as words; names of environment variables stay unchanged."""
    return plain(name if name.startswith("env.") else name.replace("_", " "))
