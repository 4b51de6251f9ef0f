"""Frozen dataclasses to JSON values and back, by their annotations.

Only what ``harness.schema`` needs: dataclasses, enums, tuples, dicts,
optionals and plain scalars. Unknown keys are ignored, so that an older
program can read a newer file; missing ones take the field's default.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")
NOT_FINITE = ("nan", "inf", "-inf")


def to_json(value: Any) -> Any:
    """Turns a schema value into what ``json.dumps(..., allow_nan=False)`` takes.

    JSON has no NaN or infinity: they travel as the strings "nan", "inf", "-inf",
    which therefore cannot be texts where a number may stand.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def from_json(kind: type[T], value: Any) -> T:
    """Builds a ``kind`` from JSON. Raises ``ValueError`` saying what does not fit."""
    return typing.cast("T", _decode(kind, value))


def _decode(kind: Any, value: Any) -> Any:  # noqa: PLR0911 - one for each kind
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return _decode_union(typing.get_args(kind), value)
    if origin is tuple:
        return tuple(_decode(typing.get_args(kind)[0], item) for item in _expect(list, value))
    if origin is dict:
        item_kind = typing.get_args(kind)[1]
        return {key: _decode(item_kind, item) for key, item in _expect(dict, value).items()}
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float:
        return _decode_float(value)
    if kind is int and isinstance(value, bool):
        raise ValueError(f"{value!r} is not an integer")
    return _expect(kind, value)


def _decode_float(value: Any) -> float:
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not a number")  # noqa: TRY004 - what from_json promises
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{value!r} is too large for a number") from None


def _decode_union(members: tuple[Any, ...], value: Any) -> Any:
    if value is None and type(None) in members:
        return None
    concrete = [member for member in members if member is not type(None)]
    if len(concrete) == 1:
        return _decode(concrete[0], value)
    if isinstance(value, str) and value in NOT_FINITE and float in concrete:
        return float(value)
    if type(value) in concrete:
        return value
    raise ValueError(f"{value!r} is not one of {concrete}")


def _decode_dataclass(kind: Any, value: Any) -> Any:
    given = _expect(dict, value)
    hints = typing.get_type_hints(kind)
    arguments = {}
    for field in dataclasses.fields(kind):
        if field.name in given:
            try:
                arguments[field.name] = _decode(hints[field.name], given[field.name])
            except ValueError as error:
                raise ValueError(f"{field.name}: {error}") from None
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _expect(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is not a {kind.__name__}")  # noqa: TRY004 - the same
    return value
