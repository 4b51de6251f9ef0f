"""Words that a user types about a model: values of a configuration, and names that are nearly right."""

from __future__ import annotations

import ast
import contextlib
import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

_WORDS = {"true": True, "false": False, "none": None, "null": None}


def value_of(text: str) -> Any:
    """A value that is no Python literal is text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    with contextlib.suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return text


def fitting(pattern: str, names: Iterable[str]) -> tuple[str, ...] | None:
    """The names that a glob fits; None for a pattern that is no glob."""
    return tuple(n for n in names if fnmatchcase(n, pattern)) if {*"*?["} & {*pattern} else None


def closest(name: str, names: Iterable[str]) -> str:
    """The end of a sentence that refuses ``name``: the closest names, or nothing."""
    lower = {other.lower(): other for other in sorted(names)}
    near = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)
    return f"; the closest: {', '.join(lower[word] for word in near)}" if near else ""
