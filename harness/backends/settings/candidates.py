"""The name of a candidate: a compiler and its own settings, as in ``inductor[layout_optimization=False]``.

Records, tables, files and commands have the whole name. ``harness.backends.settings.own_settings`` says which
settings there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"(?P<compiler>[^\[\]]+)\[(?P<settings>[^\[\]]*)\](?P<place>@[^\[\]]*)?")
_BETWEEN = re.compile(r",(?=\s*[\w.]+\s*=)")  # values may have commas
_LISTED = re.compile(r"(?:[^,\[]|\[[^\]]*\]|\[)+")


def parts_of(candidate: str) -> tuple[str, tuple[str, ...]]:
    """The compiler, and its settings as ``key=value``; () for a plain candidate."""
    match = _NAME.fullmatch(candidate)
    if match is None:
        return candidate, ()
    return match["compiler"], tuple(
        "=".join(word.strip() for word in part.split("=", 1)) for part in _BETWEEN.split(match["settings"])
    )


def compiler_of(candidate: str) -> str:
    return parts_of(candidate)[0]


def plain_of(candidate: str) -> str:
    """The candidate without settings, in the same environment: ``inductor[...]@new`` -> ``inductor@new``."""
    match = _NAME.fullmatch(candidate)
    return candidate if match is None else f"{match['compiler']}{match['place'] or ''}"


def named(compiler: str, settings: Iterable[str]) -> str:
    """The candidate's name; the compiler's own without settings."""
    words = ",".join(settings)
    return f"{compiler}[{words}]" if words else compiler


def split_list(text: str) -> list[str]:
    """The parts between commas that are in no brackets, without spaces at their ends or empty parts."""
    return [part for part in map(str.strip, _LISTED.findall(text)) if part]


def file_name(candidate: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in candidate)
