"""From typed flags to frozen dataclasses by the table of settings, and from the dataclasses back to flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from harness.settings import ROW, Flag, Given, Kind, Row, Spelled
from runner.errors import UsageError

T = TypeVar("T")


class Names(Protocol):
    """The name of a setting in messages: a flag on the command line, an argument in Python."""

    def of(self, path: str, one: Flag) -> str:
        """The name of the setting at this path of the configuration, such as ``protocol.repeat``."""

    def valued(self, path: str, one: Flag, value: Any) -> str:
        """The setting with this value, as the user would write it."""


class FlagNames:
    """``-n/--repeat``, ``--scale=full``."""

    def of(self, path: str, one: Flag) -> str:  # noqa: ARG002 - the signature of Names
        return one.shown

    def valued(self, path: str, one: Flag, value: Any) -> str:  # noqa: ARG002
        return one.long if one.metavar is None else f"{one.long}={value}"


class ArgumentNames:
    """``protocol.repeat``, ``device='cpu'``. ``other``: path -> argument, if their names differ."""

    def __init__(self, other: Mapping[str, str]) -> None:
        self._other = other

    def of(self, path: str, one: Flag) -> str:  # noqa: ARG002
        return self._other.get(path, path)

    def valued(self, path: str, one: Flag, value: Any) -> str:
        return f"{self.of(path, one)}={getattr(value, 'value', value)!r}"


FLAGS = FlagNames()


def value_of(name: str, kind: Kind, text: str) -> Any:
    """The value of the text. ``UsageError`` that begins with the name."""
    try:
        return kind.read(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
    except OSError as error:  # for example of a name that is too long
        raise UsageError(f"{name}: {text!r} cannot be used ({error.strerror})") from None


def listed(name: str, given: Sequence[str]) -> tuple[str, ...]:
    """``--x=a,b --x=c`` -> (a, b, c), without duplicates. ``UsageError`` if a flag has no value."""
    parts = []
    for value in given:
        named = [part.strip() for part in value.split(",") if part.strip()]
        if not named:
            raise UsageError(f"{name}: {value!r} is empty; give at least one value, or leave the flag out")
        parts += named
    return tuple(dict.fromkeys(parts))


def rows(kind: Any) -> Iterator[tuple[str, Any, Row | None]]:
    """Path, field and row of every setting, in inner dataclasses too. Row None: no flag sets the field."""
    for field in dataclasses.fields(kind):
        inner = field.default_factory
        if ROW not in field.metadata and isinstance(inner, type) and dataclasses.is_dataclass(inner):
            yield from ((f"{field.name}.{path}", one, row) for path, one, row in rows(inner))
        else:
            yield field.name, field, field.metadata.get(ROW)


def row_at(kind: Any, path: str) -> Row:
    return next(row for found, _, row in rows(kind) if found == path and row is not None)


def _pairs(value: Any, base: Any) -> Iterator[tuple[str, Row, Any, Any]]:
    """Path, row, and the two values of every setting that a flag sets."""
    for path, _, row in rows(type(value)):
        if row is not None:
            yield path, row, attrgetter(path)(value), attrgetter(path)(base)


# -- typed flags -> values --------------------------------------------------------------------------


def read(base: T, given: Given, names: Names = FLAGS, prefix: str = "") -> T:
    """``base`` with the values that were given. ``UsageError`` that names the wrong flag."""
    changed = {}
    for field in dataclasses.fields(base):  # type: ignore[arg-type]
        before, row = getattr(base, field.name), field.metadata.get(ROW)
        path = f"{prefix}{field.name}"
        if row is not None:
            changed[field.name] = read_row(row, given, before, names, path)
        elif dataclasses.is_dataclass(before):
            changed[field.name] = read(before, given, names, f"{path}.")
    return dataclasses.replace(base, **changed)  # type: ignore[type-var]


def read_row(row: Row, given: Given, before: Any, names: Names = FLAGS, path: str = "") -> Any:
    """The value of one setting, or ``before`` if none of its flags was given."""
    if row.read is not None:
        try:
            return row.read(given, before)
        except ValueError as error:
            raise UsageError(f"{names.of(path, row.flags[0])}: {error}") from None
    found: list[Any] = []
    chosen = []
    for one in row.flags:
        values = _values(one, given, names.of(path, one))
        found += values
        chosen += [one] if values else []
    if not chosen:
        return before
    if row.many:
        unique = any(one.listed or one.metavar is None for one in row.flags)
        return tuple(dict.fromkeys(found)) if unique else tuple(found)
    if len({repr(value) for value in found}) > 1 and len(chosen) > 1:
        raise UsageError(f"{chosen[0].long} and {chosen[1].long} exclude each other; choose one")
    return found[-1]


def _values(one: Flag, given: Given, name: str) -> list[Any]:
    """The values of one flag, [] if it was not given."""
    if one.key not in given:
        return []
    if one.metavar is None:
        return [one.means]
    words = given[one.key] if one.many or one.listed else [given[one.key]]
    if one.part:
        words = [word.partition("=")[2] for word in words if word.partition("=")[0] == one.part]
    if one.listed:
        words = listed(name, words)
    return [value_of(name, one.kind, word) for word in words]


# -- values -> flags ----------------------------------------------------------------------------------


def spelled(value: Any, base: Any, hidden: Sequence[str] = ()) -> Iterator[Spelled]:
    """The flags of every setting that differs from ``base``. ``ValueError`` if no flag can give a value."""
    for path, row, ours, theirs in _pairs(value, base):
        if (row.always or ours != theirs) and path not in hidden:
            yield spell(row, ours)


def spell(row: Row, value: Any) -> Spelled:
    """The flags that give a setting this value."""
    if row.spell is not None:
        return row.spell(value)
    if not row.many:
        return [_spell_item(row, value)]
    found: Spelled = [_spell_item(row, item) for item in value]
    joined: Spelled = []
    for one in dict.fromkeys(flag for flag, _ in found):
        texts = [text for flag, text in found if flag == one and text is not None]
        if one.listed:
            joined.append((one, ",".join(texts)))
        else:
            joined += [(one, text) for text in texts] if one.metavar is not None else [(one, None)]
    return joined


def _spell_item(row: Row, item: Any) -> tuple[Flag, str | None]:
    """The first flag that can give this value."""
    for one in row.flags:
        if one.metavar is None:
            if type(one.means) is type(item) and one.means == item:
                return one, None
            continue
        text = _text(one, item)
        try:
            one.kind.read(text)
        except ValueError:
            continue
        return one, text
    valued = [one for one in row.flags if one.metavar is not None]
    if valued:
        return valued[0], _text(valued[0], item)
    means = " or ".join(repr(one.means) for one in row.flags)
    raise ValueError(f"{item!r} is not a valid value; give {means}, or leave it out")


def _text(one: Flag, item: Any) -> str:
    try:
        return one.kind.text(item)
    except (TypeError, ValueError, AttributeError):
        return str(item)


def words(value: Any, *bases: tuple[list[str], Any], hidden: Sequence[str] = ()) -> list[str]:
    """The shortest words for this value: the words of one base, then the flags that differ from this base."""

    def after(begin: list[str], base: Any) -> list[str]:
        return [*begin, *(one.word(text) for found in spelled(value, base, hidden) for one, text in found)]

    return min((after(begin, base) for begin, base in bases), key=len)


def check_values(value: Any, base: Any, names: Names) -> None:
    """``UsageError`` for a value that the command line refuses, with the same sentence."""
    for path, row, ours, theirs in _pairs(value, base):
        if ours == theirs:
            continue
        try:
            given = _as_given(spell(row, ours))
        except (TypeError, AttributeError):
            raise UsageError(f"{names.of(path, row.flags[0])}: {ours!r} is not a valid value") from None
        except ValueError as error:
            raise UsageError(f"{names.of(path, row.flags[0])}: {error}") from None
        read_row(row, given, theirs, names, path)


def _as_given(found: Spelled) -> Given:
    given: dict[str, Any] = {}
    for one, text in found:
        if text is None:
            given[one.key] = True
        elif one.many or one.listed:
            given.setdefault(one.key, []).append(f"{one.part}={text}" if one.part else text)
        else:
            given[one.key] = text
    return given
