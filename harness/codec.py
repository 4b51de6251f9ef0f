"""Frozen dataclasses to JSON values and back, by their annotations.

Supports what ``harness.schema`` uses: dataclasses, enums, tuples, dicts, optionals and plain scalars.
Unknown keys are ignored, so that an older program can read a newer file. A missing key takes the
field's default.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
RECORDED = "recorded"  # key in a field's metadata: the field's name in JSON
NOT_FINITE = ("nan", "inf", "-inf")
WORDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a whole number"}
JSONS_OWN = frozenset((str, int, bool, type(None)))


def to_json(value: Any) -> Any:
    """A schema value as a value for ``json.dumps(..., allow_nan=False)``.

    JSON has no NaN and no infinity. They are written as the strings "nan", "inf" and "-inf", so a field
    that may hold a number cannot hold these texts.
    """
    kind: Any = type(value)
    if kind in JSONS_OWN or (kind is float and math.isfinite(value)):
        return value
    return _encoder(kind)(value)


def recorded_name(field: dataclasses.Field[Any]) -> str:
    """The field's name in JSON. A field that was renamed later keeps its old name there."""
    return str(field.metadata.get(RECORDED, field.name))


Convert = Callable[[Any], Any]


@cache
def _encoder(kind: Any) -> Convert:
    if dataclasses.is_dataclass(kind):
        names = tuple((recorded_name(field), field.name) for field in dataclasses.fields(kind))
        return lambda value: {key: to_json(getattr(value, name)) for key, name in names}
    if issubclass(kind, Enum):
        return lambda value: value.value
    if issubclass(kind, dict):
        return lambda value: {str(key): to_json(item) for key, item in value.items()}
    if issubclass(kind, (tuple, list)):
        return lambda value: [to_json(item) for item in value]
    if issubclass(kind, float):
        return lambda value: value if math.isfinite(value) else str(value)
    return lambda value: value


def from_json(kind: type[T], value: Any) -> T:
    """Builds a ``kind`` from JSON. ``ValueError`` names the value that does not fit."""
    decode = _decoder(typing.cast("typing.Hashable", kind))
    return typing.cast("T", decode(value))


@cache
def _decoder(kind: Any) -> Convert:  # noqa: PLR0911 - one return for each kind
    """The decoder of ``kind``. It is cached, because thousands of records have the same annotations."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return _decoder_of_union(typing.get_args(kind))
    if origin is tuple:
        return _decoder_of_tuple(typing.get_args(kind)[0])
    if origin is dict:
        item = _decoder(typing.get_args(kind)[1])
        return lambda value: {key: item(part) for key, part in _expect(dict, value).items()}
    if dataclasses.is_dataclass(kind):
        return _decoder_of_dataclass(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if kind is float:
        return _decode_float
    if kind is int:
        return _decode_int
    return lambda value: _expect(kind, value)


def _decode_int(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not an integer")  # noqa: TRY004 - what from_json promises
    return typing.cast("int", _expect(int, value))


def _decode_float(value: Any) -> float:
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not a number")  # noqa: TRY004 - what from_json promises
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{value!r} is too large for a number") from None


def _decoder_of_tuple(item_kind: Any) -> Convert:
    item = _decoder(item_kind)

    def decode(value: Any) -> Any:
        items = _expect(list, value)
        if {item_kind}.issuperset(map(type, items)):  # long columns of times need no conversion
            return tuple(items)
        return tuple(item(part) for part in items)

    return decode


def _decoder_of_union(members: tuple[Any, ...]) -> Convert:
    optional = type(None) in members
    concrete = tuple(member for member in members if member is not type(None))
    only = _decoder(concrete[0]) if len(concrete) == 1 else None

    def decode(value: Any) -> Any:
        if value is None and optional:
            return None
        if only is not None:
            return only(value)
        if isinstance(value, str) and value in NOT_FINITE and float in concrete:
            return float(value)
        if type(value) in concrete:
            return value
        raise ValueError(f"{value!r} is not one of {list(concrete)}")

    return decode


def _decoder_of_dataclass(kind: Any) -> Convert:
    hints = typing.get_type_hints(kind)
    fields = [
        (field.name, recorded_name(field), _decoder(hints[field.name])) for field in dataclasses.fields(kind)
    ]
    required = {
        recorded_name(field)
        for field in dataclasses.fields(kind)
        if field.default is field.default_factory is dataclasses.MISSING
    }

    def decode(value: Any) -> Any:
        given = _expect(dict, value)
        if missing := sorted(required - given.keys()):
            raise ValueError(f"it has no {missing[0]}")
        arguments = {}
        for name, key, item in fields:
            if key in given:
                try:
                    arguments[name] = item(given[key])
                except ValueError as error:
                    raise ValueError(f"{key}: {error}") from None
        return kind(**arguments)

    return decode


def _expect(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is not {WORDS.get(kind, kind.__name__)}")  # noqa: TRY004 - what from_json promises
    return value
