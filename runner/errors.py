"""The exception that ends the program with one sentence, and helpers for its text."""

from __future__ import annotations

from collections.abc import Iterable

from harness.settings import no_such

LONGEST = 800  # characters; the end of a sentence says what would be right


class UsageError(Exception):
    """Bad input. The message is one sentence for the user; the exit code is 2, and nothing is written."""

    def __init__(self, message: str) -> None:
        half = LONGEST // 2
        super().__init__(message if len(message) <= LONGEST else f"{message[:half]} ... {message[-half:]}")


def words_of(error: BaseException, longest: int = 300) -> str:
    """``ValueError: its text``. Only the type's name if a foreign exception's ``__str__`` raises."""
    kind = type(error).__name__
    try:
        text = str(error)
    except Exception:
        return kind
    return f"{kind}: {text[:longest]}" if text else kind


def unknown(flag: str, given: str, kind: str, known: Iterable[str]) -> UsageError:
    """The error for a ``given`` that is not a ``kind``. It names the flag and the nearest valid names."""
    return UsageError(f"{flag}: {no_such(given, kind, known)}")
