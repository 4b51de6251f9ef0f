"""Puts runs into the index: each as it ends, or all of a folder at once."""

from __future__ import annotations

import contextlib
import json
import shlex
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from runner.changes.load import load_records
from runner.changes.run import NO_RECORD
from runner.errors import UsageError
from runner.history.index import INDEX, Damaged, Entry, how_to_rebuild, rewrite, write_entry
from runner.labels import plain
from runner.run_folder import RECORDS, RUN

FAILURES = (OSError, sqlite3.Error, Damaged, ValueError)


def enter(folder: Path) -> None:
    """Enters a run that has ended into the index beside it. Never fails: a note says what was wrong."""
    path = folder.parent / INDEX
    try:
        write_entry(path, entry_of(folder))
    except FAILURES as error:
        why = f"note: this run was not entered in {path} ({error}); {how_to_rebuild(path)}"
        print(plain(why), file=sys.stderr)


def rebuild(folder: Path) -> str:
    """Makes the index of a folder again from its runs; a sentence on it. ``UsageError``."""
    if not folder.is_dir():
        raise UsageError(f"--history: there is no folder {folder}; give the folder that holds your runs")
    entries, left_out = [], []
    for path in _runs(folder):
        try:
            entries.append(entry_of(path))
        except (OSError, ValueError) as error:
            left_out.append(f"{path.name} ({error})")
    if not entries:
        raise UsageError(f"--history: there is no run in {folder}; give the folder that holds your runs")
    try:
        gone = rewrite(folder / INDEX, entries)
    except (OSError, sqlite3.Error, Damaged) as error:
        raise UsageError(f"--history: {folder / INDEX} cannot be written ({error})") from None
    count = "1 run" if len(entries) == 1 else f"{len(entries)} runs"
    dropped = f"; {gone} whose folders are gone were dropped" if gone else ""
    skipped = f"; left out, because they cannot be read: {', '.join(left_out)}" if left_out else ""
    return plain(f"{count} -> {folder / INDEX}{dropped}{skipped}")


def _runs(folder: Path) -> Iterator[Path]:
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise UsageError(f"--history: {folder} cannot be read ({error.strerror})") from None
    for path in inside:
        with contextlib.suppress(OSError):  # a folder that may not be looked into
            if (path / RECORDS).is_file():
                yield path


def entry_of(folder: Path) -> Entry:
    """What the index keeps of a run. ``OSError``, ``ValueError`` when it has no record that can be read."""
    run = load_records(folder / RECORDS)
    measured = tuple(result for result in run.results if result.status != NO_RECORD)
    if not measured:
        raise ValueError("it holds no record")
    about = _about(folder / RUN)
    words = about.get("command")
    joined = about.get("merged_from")
    return Entry(
        name=folder.name,
        created=_created(about, folder),
        command=f"runner.py {shlex.join(map(str, words))}" if isinstance(words, list) else "",
        planned=len(run.results),
        machine=run.facts.get("device_name") or run.facts.get("cpu") or "",
        facts=run.facts,
        tags=tuple(tag for tag in _listed(about.get("tags")) if isinstance(tag, str)),
        merged_from=tuple(
            Path(str(origin["folder"])).name
            for origin in _listed(joined)
            if isinstance(origin, dict) and "folder" in origin
        ),
        results=measured,
    )


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _about(path: Path) -> Mapping[str, Any]:
    """What ``run.json`` says; nothing where it cannot be read: the records are what counts."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def _created(about: Mapping[str, Any], folder: Path) -> datetime:
    try:
        found = datetime.fromisoformat(str(about.get("created")))
    except ValueError:
        return datetime.fromtimestamp((folder / RECORDS).stat().st_mtime, timezone.utc)
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
