"""How a setting is declared: a row beside its field, with its flags and help, and how its value is read.

A row is metadata of a field of a frozen dataclass. ``harness.protocol`` has the rows of a job,
``runner.plan.config`` the rows of a run. ``runner.plan.settings`` makes from the rows: the command line, the
command that reproduces a job, ``docs/FLAGS.md`` and the checks of ``torchduet.compare()``.

A plain function reads a value from text. Its ``ValueError`` has a sentence that does not name the setting.
The caller puts the name (a flag or an argument) before the sentence.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from harness.codec import RECORDED

ROW = "setting"  # key of a field's metadata
Given = Mapping[str, Any]
"""The typed values by ``Flag.key``. Flags that were not typed have no key."""


class Group(Enum):
    """The groups of ``--help``, in the order of the page."""

    ACTIONS = "instead of measuring"
    SELECTION = "what to measure"
    MODELS = "which form of the models"
    COMPILERS = "compilers (candidates, each paired with eager)"
    OPTIONS = "options of the compilers"
    CONDITIONS = "under which conditions"
    PROTOCOL = "how to measure"
    EXTRAS = "what else to find out (never during timed samples)"
    ENVIRONMENTS = "in which Python environments"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is read from text (``ValueError`` for bad text) and printed without loss of digits."""

    read: Callable[[str], Any] = str
    text: Callable[[Any], str] = str
    words: tuple[str, ...] = ()  # all allowed words, if they are a fixed list


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag. A flag without ``metavar`` is a switch, and ``means`` is its value.

    ``part``: the NAME of a flag that is typed as ``--flag NAME=VALUE``. ``many``: the flag may be repeated.
    ``listed``: values may also be separated by commas. ``nargs`` and ``const`` go to argparse.
    """

    names: tuple[str, ...]
    group: Group
    help: str
    metavar: str | tuple[str, ...] | None = None
    kind: Kind = Kind()
    means: Any = True
    part: str = ""
    listed: bool = False
    many: bool = False
    nargs: int | str | None = None
    const: str | None = None

    @property
    def long(self) -> str:
        """The name in printed commands."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])

    @property
    def key(self) -> str:
        """The key in ``Given``."""
        return self.long.lstrip("-").replace("-", "_")

    @property
    def shown(self) -> str:
        """The name in messages: ``-n/--repeat``."""
        short = [name for name in self.names if not name.startswith("--")]
        name = "/".join([*short, self.long])
        return f"{name}: {self.part}" if self.part else name

    def word(self, text: str | None) -> str:
        """The word of a command line that gives this value. ``text`` is None for a switch."""
        if text is None:
            return self.long
        return f"{self.long}={self.part}={text}" if self.part else f"{self.long}={text}"


Spelled = list[tuple[Flag, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting. ``many``: its value is a tuple. ``always``: commands name it even if it has its default.

    ``identifies``: results with different values are different measurements, which are never compared.
    ``read`` and ``spell`` compute a setting from several flags. None: each flag gives a value.
    """

    flags: tuple[Flag, ...]
    many: bool = False
    always: bool = False
    identifies: bool = False
    read: Callable[[Given, Any], Any] | None = None  # (typed values, default) -> value
    spell: Callable[[Any], Spelled] | None = None


def setting(default: Any, *flags: Flag, recorded: str | None = None, **of_row: Any) -> Any:
    """A dataclass field with its row. ``default``: the value, or a function that returns the value.

    ``recorded``: the older name, which records keep. ``of_row``: the other fields of ``Row``.
    """
    row = Row(flags=flags, **of_row)
    metadata: dict[str, Any] = {ROW: row, **({RECORDED: recorded} if recorded else {})}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def flag(*names: str, group: Group, help: str, **more: Any) -> Flag:  # noqa: A002 - argparse's word
    """A flag. Its metavar may stand in the last name, as in ``--repeat=N``, and then says its kind."""
    last, equals, metavar = names[-1].partition("=")
    if equals:
        more = {"metavar": metavar, "kind": KINDS.get(metavar, Kind()), **more}
    return Flag(names=(*names[:-1], last), group=group, help=help, **more)


def by_flag(default: Any, *names: str, recorded: str | None = None, **more: Any) -> Any:
    """A dataclass field that one flag sets. A flag with ``many`` or ``listed`` makes a tuple."""
    of_row = {name: more.pop(name) for name in ("always", "identifies") if name in more}
    own = flag(*names, **more)
    return setting(default, own, many=own.many or own.listed, recorded=recorded, **of_row)


def identity(settings: Any) -> Iterator[tuple[str, Any]]:
    """Name and value of the settings that identify a measurement, where they differ from their defaults."""
    plain = type(settings)()
    for row_field in fields(settings):
        row, value = row_field.metadata.get(ROW), getattr(settings, row_field.name)
        if row is not None and row.identifies and value != getattr(plain, row_field.name):
            yield row_field.name, value


# -- kinds of values ------------------------------------------------------------------------------


def no_such(text: str, noun: str, known: Iterable[str]) -> str:
    """The sentence for an unknown word. It names similar known words, or all of them if they are few."""
    names = sorted(known)
    # if there are few words, all are better advice than a distant one
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.65 if len(names) <= 5 else 0.5)
    if near:
        advice = f"did you mean {' or '.join(near)}?"
    elif len(names) <= 12:
        advice = f"choose from {', '.join(names)}"
    else:
        advice = f"there are {', '.join(names[:5])} and {len(names) - 5} others"
    return f"there is no {noun} called {text!r}; {advice}"


def choice(noun: str, known: Iterable[str]) -> Kind:
    """A word of this list."""
    words = tuple(known)

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(no_such(text, noun, words))
        return text

    return Kind(read, words=words)


_SOURCE = re.compile(r"^.+:[^\W\d]\w*$")


def is_own_model(name: str) -> bool:
    """Whether ``name`` has the form ``module:function`` or ``file.py:function``."""
    return _SOURCE.match(name) is not None


def placed(spec: str) -> str:
    """``file.py`` or ``file.py:function`` with the file's absolute path; ``spec`` itself if it is neither.

    ``ValueError`` if there is no such file.
    """
    module, colon, function = spec.rpartition(":") if is_own_model(spec) else (spec, "", "")
    if not module.endswith(".py"):
        return spec
    path = Path(module).resolve()
    if not path.is_file():
        raise ValueError(f"there is no file {module!r}")
    return f"{path}{colon}{function}"


def own_or(words: Kind) -> Kind:
    """``file.py:function`` or ``package.module:function``, or one of these words."""
    return Kind(lambda text: placed(text) if is_own_model(text) else words.read(text), words=words.words)


def whole(text: str, least: int = 0) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
    if value < least:
        raise ValueError(f"{text} is too small; give a whole number from {least} up")
    if value >= 2**63:
        raise ValueError(f"{text} is too large")
    return value


def duration(text: str) -> float:
    """``90``, ``90s``, ``30m`` or ``1.5h``, as seconds."""
    stripped = text.strip().lower()
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(stripped[-1:])
    try:
        value = float(stripped if unit is None else stripped[:-1]) * (unit or 1.0)
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write for example 30m, 90s or 2h") from None
    if not (0 < value < math.inf):
        raise ValueError(f"{text} is not a time above 0; write for example 30m, 90s or 2h")
    return value


def share(text: str) -> float:
    """``2%`` or ``0.02``. A bare ``2`` is an error, because it could mean either."""
    stripped = text.strip()
    percent = stripped.endswith("%")
    try:
        value = float(stripped.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        raise ValueError(f"{text!r} is not a share; write for example 2%") from None
    if not (0 < value < 1):
        raise ValueError(f"{text!r} is not between 0 and 100 %; write for example 2% or 0.02")
    if value < 1e-6:
        raise ValueError(f"{text!r} is too small for any clock; give 0.0001% or more")
    return value


def gigabytes(text: str) -> int:
    """``8`` or ``1.5`` gigabytes (10^9 bytes), as bytes."""
    try:
        value = Decimal(text.strip().upper().removesuffix("GB").strip())
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number of gigabytes; write for example 8") from None
    if value.is_nan() or not (Decimal("1e-9") <= value < 10**6):
        raise ValueError(f"{text} is not an amount of memory; give gigabytes above 0")
    return int(value * 10**9)


def key_value(text: str) -> str:
    if not re.match(r"^[\w.]+=", text):
        raise ValueError(f"{text!r} is not written as key=value")
    return text


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{text!r} is not a regular expression ({error})") from None
    return text


def within(fits: Callable[[float], bool], words: str) -> Callable[[str], float]:
    """Reads a finite number that ``fits``. ``words`` describe such a number, for the error."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and fits(value)):
            raise ValueError(f"{text!r} is not {words}")
        return value

    return read


seconds = within(lambda value: value > 0, "a time in seconds, above 0")


def number_text(value: float) -> str:
    """The shortest text that keeps all digits."""
    return repr(value).removesuffix(".0")


def share_text(value: float) -> str:
    percent = f"{value * 100:g}%"
    return percent if float(percent[:-1]) / 100 == value else repr(value)


def gigabytes_text(size: int) -> str:
    gigabyte, rest = divmod(size, 10**9)
    return f"{gigabyte}.{rest:09d}".rstrip("0").rstrip(".")


WHOLE, COUNT = Kind(whole), Kind(partial(whole, least=1))
SECONDS, DURATION = Kind(seconds, number_text), Kind(duration, number_text)
SHARE, GIGABYTES = Kind(share, share_text), Kind(gigabytes, gigabytes_text)
KEY_VALUE, PATTERN = Kind(key_value), Kind(pattern)
KINDS = {"N": COUNT, "K": COUNT, "S": SECONDS, "GB": GIGABYTES, "RE": PATTERN, "KEY=VALUE": KEY_VALUE}
"""By the metavar of a flag."""
