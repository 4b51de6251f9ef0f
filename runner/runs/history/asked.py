"""What ``--history`` asks for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from runner.errors import UsageError

UNITS = {"h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which runs of which folder. Empty: no filter. ``since``: UTC."""

    folder: Path
    suites: tuple[str, ...] = ()
    compilers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    since: datetime | None = None
    rebuild: bool = False


def since(text: str, now: datetime) -> datetime:
    """``7d`` before ``now``, or an ISO 8601 date or time (UTC without a zone)."""
    ago = re.fullmatch(r"(\d{1,4})([hdw])", text.strip())
    if ago:
        return now - timedelta(**{UNITS[ago[2]]: int(ago[1])})
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(f"--since: {text!r} is not a time; write for example 2026-11-01 or 7d") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
