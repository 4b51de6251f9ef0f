"""``--format``: which files a run ends in, and whether its tables are printed."""

from __future__ import annotations

from runner.errors import unknown

CONSOLE = "console"


def formats_asked(given: tuple[str, ...]) -> frozenset[str] | None:
    """The formats asked for; None: all. ``UsageError`` for a word that no report knows."""
    if not given:
        return None
    from runner.reports import formats  # imports every report: only where one is chosen

    known = (*formats(), CONSOLE)
    for word in given:
        if word.lower() not in known:
            raise unknown("--format", word, "format", known)
    return frozenset(word.lower() for word in given)


def printed(formats: frozenset[str] | None) -> bool:
    """Whether the tables belong on the console."""
    return formats is None or CONSOLE in formats
