"""The flags of ``--history`` and ``--tag``, and what is asked by them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from runner.errors import UsageError

UNITS = {"h": "hours", "d": "days", "w": "weeks"}
LONGEST_TAG = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which runs of which folder. Empty: no filter. ``since``: UTC."""

    folder: Path
    suites: tuple[str, ...] = ()
    compilers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    since: datetime | None = None
    rebuild: bool = False


def add_history(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--history",
        nargs="?",
        const="logs",
        metavar="DIR",
        help="list the runs that were entered in DIR/history.sqlite, and draw DIR/history.png: pass rate, "
        "speedup, compile time, memory over time (default: logs); with --suites, --compilers, --tag, --since",
    )
    group.add_argument(
        "--rebuild", action="store_true", help="with --history: make the index again from the run folders"
    )
    group.add_argument(
        "--since", metavar="WHEN", help="with --history: runs since 2026-11-01, or of the last 12h, 7d, 4w"
    )


def add_tag(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--tag",
        action="append",
        metavar="NAME",
        help="a name for this run, kept in its run.json and shown by --history (may be repeated)",
    )


Listed = Callable[[str, "list[str] | None"], tuple[str, ...]]


def history_asked(options: argparse.Namespace, listed: Listed) -> Asked:
    """``UsageError`` for a time that is none."""
    return Asked(
        folder=Path(options.history),
        suites=listed("--suites", options.suites),
        compilers=listed("--compilers", options.compilers),
        tags=tags_asked(options.tag),
        since=since(options.since, datetime.now(timezone.utc)) if options.since is not None else None,
        rebuild=options.rebuild,
    )


def refuse_lone_filters(options: argparse.Namespace) -> None:
    for flag, given in (("--rebuild", options.rebuild), ("--since", options.since is not None)):
        if given and options.history is None:
            raise UsageError(f"{flag} is for --history; leave it out, or add --history")


def tags_asked(given: list[str] | None) -> tuple[str, ...]:
    """Each once. ``UsageError`` for an empty one, or one that would not fit into a table."""
    for tag in given or ():
        if not tag.strip() or not tag.isprintable() or len(tag) > LONGEST_TAG:
            raise UsageError(f"--tag: {tag!r} is no name; give up to {LONGEST_TAG} printable characters")
    return tuple(dict.fromkeys(tag.strip() for tag in given or ()))


def since(text: str, now: datetime) -> datetime:
    """``7d`` before ``now``, or a date or time of ISO 8601 (UTC where it names no zone)."""
    ago = re.fullmatch(r"(\d{1,4})([hdw])", text.strip())
    if ago:
        return now - timedelta(**{UNITS[ago[2]]: int(ago[1])})
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(f"--since: {text!r} is no time; write for example 2026-11-01 or 7d") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
