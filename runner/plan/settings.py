"""From typed flags to frozen dataclasses by the table of settings, and from the dataclasses back to flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from harness.backends.settings.candidates import split_list
from harness.settings import ROW, Flag, Given, Kind, Row, Spelled
from runner.errors import UsageError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Names:
    """The names of settings in messages: flags, such as ``-n/--repeat`` or ``--scale=full``.

    With ``arguments``, those of Python: ``protocol.repeat`` or ``device='cpu'``. It has the argument of each
    path that is called otherwise there.
    """

    arguments: Mapping[str, str] | None = None

    def of(self, path: str, flag: Flag) -> str:
        """The name of the setting at this path of the configuration, such as ``protocol.repeat``."""
        return flag.shown if self.arguments is None else self.arguments.get(path, path)

    def valued(self, path: str, flag: Flag, value: Any) -> str:
        """The setting with this value, as the user would write it."""
        if self.arguments is not None:
            return f"{self.of(path, flag)}={getattr(value, 'value', value)!r}"
        return flag.long if flag.metavar is None else f"{flag.long}={value}"


FLAGS = Names()


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
        named = split_list(value)
        if not named:
            raise UsageError(f"{name}: {value!r} is empty; give at least one value, or leave the flag out")
        parts += named
    return tuple(dict.fromkeys(parts))


def rows(kind: Any) -> Iterator[tuple[str, Any, Row | None]]:
    """Path, field and row of every setting, in inner dataclasses too. Row None: no flag sets the field."""
    for field in dataclasses.fields(kind):
        inner = field.default_factory
        if ROW not in field.metadata and isinstance(inner, type) and dataclasses.is_dataclass(inner):
            yield from ((f"{field.name}.{path}", inner_field, row) for path, inner_field, row in rows(inner))
        else:
            yield field.name, field, field.metadata.get(ROW)


def row_at(kind: Any, path: str) -> Row:
    return next(row for other, _, row in rows(kind) if other == path and row is not None)


def _pairs(value: Any, base: Any) -> Iterator[tuple[str, Row, Any, Any]]:
    """Path, row, and the two values of every setting that a flag sets."""
    for path, _, row in rows(type(value)):
        if row is not None:
            yield path, row, attrgetter(path)(value), attrgetter(path)(base)


# -- typed flags -> values --------------------------------------------------------------------------


def read(base: T, given: Given) -> T:
    """``base`` with the values that were given. ``UsageError`` that names the wrong flag."""
    for path, row, before, _ in _pairs(base, base):
        value = read_row(row, given, before, FLAGS, path)
        if value is not before:
            base = _replaced(base, path, value)
    return base


def _replaced(base: Any, path: str, value: Any) -> Any:
    name, _, inner = path.partition(".")
    if inner:
        value = _replaced(getattr(base, name), inner, value)
    return dataclasses.replace(base, **{name: value})


def read_row(row: Row, given: Given, before: Any, names: Names = FLAGS, path: str = "") -> Any:
    """The value of one setting, or ``before`` if none of its flags was given."""
    if row.read is not None:
        try:
            return row.read(given, before)
        except ValueError as error:
            raise UsageError(f"{names.of(path, row.flags[0])}: {error}") from None
    typed = {flag.long: _values(flag, given, names.of(path, flag)) for flag in row.flags if flag.key in given}
    values = [value for of_flag in typed.values() for value in of_flag]
    if not values:
        return before
    if row.many:
        unique = any(flag.listed or flag.metavar is None for flag in row.flags)
        return tuple(dict.fromkeys(values)) if unique else tuple(values)
    if len({*map(repr, values)}) > 1:
        both = [name for name, of_flag in typed.items() if of_flag][:2]
        twice = f"{names.of(path, row.flags[0])}: given twice; choose one value"
        raise UsageError(twice if len(both) == 1 else f"{' and '.join(both)} exclude each other; choose one")
    return values[-1]


def _values(flag: Flag, given: Given, name: str) -> list[Any]:
    """The values of a flag that was given; of one with a part, those of this part."""
    if flag.metavar is None:
        return [flag.means]
    words = given[flag.key] if flag.many or flag.listed else [given[flag.key]]
    if flag.part:
        words = [word.partition("=")[2] for word in words if word.partition("=")[0] == flag.part]
    if flag.listed:
        words = listed(name, words)
    return [value_of(name, flag.kind, word) for word in words]


# -- values -> flags ----------------------------------------------------------------------------------


def spell(row: Row, value: Any) -> Spelled:
    """The flags that give a setting this value."""
    if row.spell is not None:
        return row.spell(value)
    if not row.many:
        return [_spell_item(row, value)]
    items = [_spell_item(row, item) for item in value]
    spelled: Spelled = []
    for flag in dict.fromkeys(flag for flag, _ in items):
        texts = [text for other, text in items if other == flag and text is not None]
        texts = [",".join(texts)] if flag.listed and texts else texts
        spelled += [(flag, text) for text in texts] if flag.metavar is not None else [(flag, None)]
    return spelled


def _spell_item(row: Row, item: Any) -> tuple[Flag, str | None]:
    """The first flag that can give this value; else the first with a value, which will refuse it."""
    refusing = []
    for flag in row.flags:
        if flag.metavar is None:
            if type(flag.means) is type(item) and flag.means == item:
                return flag, None
            continue
        try:
            flag.kind.read(text := flag.kind.text(item))
        except (TypeError, ValueError, AttributeError):
            refusing.append((flag, str(item)))
        else:
            return flag, text
    if not refusing:
        means = " or ".join(repr(flag.means) for flag in row.flags)
        raise ValueError(f"{item!r} is not a valid value; give {means}, or leave it out")
    return refusing[0]


def words(value: Any, *bases: tuple[list[str], Any], hidden: Sequence[str] = ()) -> list[str]:
    """The shortest words for this value: the words of one base, then the flags that differ from this base."""

    def after(begin: list[str], base: Any) -> list[str]:
        differing = (
            spell(row, ours)
            for path, row, ours, theirs in _pairs(value, base)
            if (row.always or ours != theirs) and path not in hidden
        )
        return [*begin, *(flag.word(text) for spelled in differing for flag, text in spelled)]

    return min((after(begin, base) for begin, base in bases), key=len)


def check_values(value: Any, base: Any, names: Names) -> None:
    """``UsageError`` for a value that the command line refuses, with the same sentence."""
    for path, row, ours, theirs in _pairs(value, base):
        if ours == theirs:
            continue
        name, invalid = names.of(path, row.flags[0]), f"{ours!r} is not a valid value"
        try:
            given = _as_given(spell(row, ours))
        except (TypeError, AttributeError, ValueError) as error:
            why = error if isinstance(error, ValueError) else invalid
            raise UsageError(f"{name}: {why}") from None
        read = read_row(row, given, theirs, names, path)
        if isinstance(ours, str) and not isinstance(read, str):  # the text of a number
            raise UsageError(f"{name}: {invalid}")


def _as_given(spelled: Spelled) -> Given:
    given: dict[str, Any] = {}
    for flag, text in spelled:
        if text is None:
            given[flag.key] = True
        elif flag.many or flag.listed:
            given.setdefault(flag.key, []).append(f"{flag.part}={text}" if flag.part else text)
        else:
            given[flag.key] = text
    return given
