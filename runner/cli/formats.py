"""``--format``: which files an action writes, and whether it prints the tables."""

from __future__ import annotations

from harness.settings import Given, Group, Kind, Row, flag, no_such
from runner.plan.settings import read_row

CONSOLE = "console"
Formats = frozenset[str] | None  # the requested formats; None: all


def _format(text: str) -> str:
    from runner.reports import formats  # slow: it imports every report

    if text.lower() not in (known := (*formats(), CONSOLE)):
        raise ValueError(no_such(text, "format", known))
    return text.lower()


FORMAT = flag(
    "--format=FORMAT",
    group=Group.OUTPUT,
    listed=True,
    kind=Kind(_format),
    help="html, md, csv, json, png, svg: files; console: the tables; hud: for dashboards, docs/CI.md "
    "(default: all but hud)",
)


def formats_asked(given: Given) -> Formats:
    """``UsageError`` for an unknown format."""
    return frozenset(read_row(Row(flags=(FORMAT,), many=True), given, ())) or None
