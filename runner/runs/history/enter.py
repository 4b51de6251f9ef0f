"""Adds runs to the index: each run when it ends, or all runs of a folder."""

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

from runner.errors import UsageError
from runner.labels import counted, plain
from runner.runs.compare.load import load_records
from runner.runs.compare.run import NO_RECORD, Run
from runner.runs.history.index import INDEX, Damaged, IndexedRun, how_to_rebuild, rewrite, write_entry
from runner.store.invocation import program
from runner.store.run_folder import RECORDS, RUN

FAILURES = (OSError, sqlite3.Error, Damaged, ValueError)


def enter(folder: Path) -> None:
    """Adds a finished run to the index beside it. Never fails: an error becomes a note."""
    path = folder.parent / INDEX
    try:
        write_entry(path, entry_of(folder))
    except FAILURES as error:
        why = f"note: this run was not entered in {path} ({error}); {how_to_rebuild(path)}"
        print(plain(why), file=sys.stderr)


def rebuild(folder: Path) -> str:
    """Rebuilds the index of a folder from its runs; returns a summary. Raises ``UsageError``."""
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
    dropped = f"; {gone} whose folders are gone were dropped" if gone else ""
    skipped = f"; left out, because they cannot be read: {', '.join(left_out)}" if left_out else ""
    return plain(f"{counted(len(entries), 'run')} -> {folder / INDEX}{dropped}{skipped}")


def _runs(folder: Path) -> Iterator[Path]:
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise UsageError(f"--history: {folder} cannot be read ({error.strerror})") from None
    for path in inside:
        with contextlib.suppress(OSError):  # a folder without read permission
            if (path / RECORDS).is_file():
                yield path


def entry_of(folder: Path) -> IndexedRun:
    """A run's entry. Raises ``OSError``, and ``ValueError`` if no record can be read."""
    found = entered(folder, load_records(folder / RECORDS))
    if not found.results:
        raise ValueError("it holds no record")
    return found


def entered(folder: Path, run: Run | None = None) -> IndexedRun:
    """A run as the index has it; None: without its results."""
    about = _about(folder / RUN)
    words = about.get("command")
    results, facts = (run.results, run.facts) if run is not None else ((), {})
    return IndexedRun(
        name=folder.name,
        created=_created(about, folder),
        command=shlex.join((*program(), *map(str, words))) if isinstance(words, list) else "",
        planned=len(results),
        machine=facts.get("device_name") or facts.get("cpu") or "",
        facts=facts,
        tags=tuple(tag for tag in _listed(about.get("tags")) if isinstance(tag, str)),
        merged_from=tuple(
            Path(str(origin["folder"])).name
            for origin in _listed(about.get("merged_from"))
            if isinstance(origin, dict) and "folder" in origin
        ),
        results=tuple(result for result in results if result.status != NO_RECORD),
    )


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _about(path: Path) -> Mapping[str, Any]:
    """The content of ``run.json``; empty if it cannot be read, because the records suffice."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def _created(about: Mapping[str, Any], folder: Path) -> datetime:
    """The start that the run states, or the creation time of its files."""
    try:
        found = datetime.fromisoformat(str(about.get("created")))
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except ValueError:
        pass
    for name in (RUN, RECORDS, ""):
        with contextlib.suppress(OSError):
            return datetime.fromtimestamp((folder / name).stat().st_mtime, timezone.utc)
    return datetime.fromtimestamp(0, timezone.utc)
