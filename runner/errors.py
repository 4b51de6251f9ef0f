"""The one exception that ends the program with a sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(Exception):
    """Bad input: the message is one clear sentence for the person; exit code 2, nothing written."""


def words_of(error: BaseException, longest: int = 300) -> str:
    """``ValueError: what it says``, for an exception of code that is not ours: its own text may raise."""
    kind = type(error).__name__
    try:
        text = str(error)
    except Exception:
        return kind
    return f"{kind}: {text[:longest]}" if text else kind


def unknown(flag: str, given: str, kind: str, known: Iterable[str]) -> UsageError:
    """``given`` is no ``kind``: names the flag and the nearest valid names (or all, when few)."""
    names = sorted(known)
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    if near:
        advice = f"did you mean {' or '.join(near)}?"
    elif len(names) <= 12:
        advice = f"choose from {', '.join(names)}"
    else:
        advice = "see --list for the names"
    return UsageError(f"{flag}: there is no {kind} called {given!r}; {advice}")
