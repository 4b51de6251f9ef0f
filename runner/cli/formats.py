"""``--format``: which files an action writes, and what it prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.settings import Given, Group, Kind, Row, flag, no_such
from runner.errors import UsageError
from runner.plan.settings import read_row

if TYPE_CHECKING:
    from rich.console import Console

CONSOLE, JSON_LINES = "console", "jsonl"
OTAVA = "otava"  # of --history alone
Formats = frozenset[str] | None  # the requested formats; None: all


def _format(text: str) -> str:
    from runner.reports import formats  # slow: it imports every report

    if text.lower() not in (known := (*formats(), CONSOLE, JSON_LINES, OTAVA)):
        raise ValueError(no_such(text, "format", known))
    return text.lower()


FORMAT = flag(
    "--format=FORMAT",
    group=Group.OUTPUT,
    listed=True,
    kind=Kind(_format),
    help="html, md, csv, json, png, svg: files; console: the tables (default: all of these); for other "
    "programs, docs/CI.md: hud, junit, bencher: files; jsonl: each result on a line of standard output; "
    "otava: with --history",
)


def formats_asked(given: Given, others: tuple[str, ...] = ()) -> Formats:
    """``UsageError`` for an unknown format. ``others``: that this action has beside those of a run."""
    formats = frozenset(read_row(Row(flags=(FORMAT,), many=True), given, ()))
    if OTAVA in formats and OTAVA not in others:
        raise UsageError(f"{FORMAT.long}: {OTAVA} is a series of runs; add --history, or leave it out")
    return formats or None


def console_for(formats: Formats) -> Console:
    """Where the program prints: not between the lines of ``jsonl``."""
    from rich.console import Console

    return Console(stderr=formats is not None and JSON_LINES in formats)
