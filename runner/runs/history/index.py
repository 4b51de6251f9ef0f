"""The index of runs: one SQLite file beside them. It can be rebuilt from the run folders.

Several programs may write at the same time: each entry is a transaction, which waits for the others.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from harness.codec import from_json, to_json
from runner.analysis.digits import MISSING
from runner.errors import UsageError
from runner.runs.compare.run import Result
from runner.store.invocation import program

INDEX = "history.sqlite"
VERSION = 1
PATIENCE_S = 30.0  # wait for another program that writes

TABLES = """
create table if not exists runs (
    name text primary key,      -- of the folder, beside the index
    created text not null,      -- UTC, ISO 8601
    command text not null,
    planned integer not null,   -- results that the plan promises
    machine text not null,
    facts text not null,        -- JSON object: torch, Python, threads...
    tags text not null,         -- JSON list
    merged_from text not null   -- JSON list of folders' names
) strict;
create table if not exists results (
    run text not null references runs(name) on delete cascade,
    model text not null,
    suite text not null,
    compiler text not null,
    status text not null,
    result text not null        -- JSON object: a Result of runner/runs/compare/run.py
) strict;
create index if not exists results_of_run on results (run);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedRun:
    """A run as the index has it. ``created`` is UTC; ``merged_from``: folders whose results it joins."""

    name: str
    created: datetime
    command: str
    planned: int
    machine: str
    facts: Mapping[str, str]
    tags: tuple[str, ...]
    merged_from: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()

    @property
    def counted(self) -> tuple[Result, ...]:
        """The results that were not skipped."""
        return tuple(result for result in self.results if not result.skipped)

    @property
    def passed_text(self) -> str:
        """``92%, 11/12``"""
        passed, total = sum(result.passed for result in self.counted), len(self.counted)
        return f"{passed / total:.0%}, {passed}/{total}" if total else MISSING


class Damaged(Exception):
    """The file is broken or not an index of this program. The message names the cause."""


UNREADABLE = (Damaged, sqlite3.Error, ValueError, KeyError, TypeError)
"""Everything that reading an index may raise."""


def how_to_rebuild(path: Path) -> str:
    return f"rebuild it from the run folders: {' '.join(program())} --history {path.parent} --rebuild"


def read_entries(path: Path) -> tuple[IndexedRun, ...]:
    """Every run, oldest first. Raises ``UsageError`` if the index is missing or cannot be read."""
    if not path.is_file():
        raise UsageError(f"--history: there is no {path}; {how_to_rebuild(path)}")
    try:
        with _opened(path) as index:
            found: dict[str, list[Result]] = {}
            for name, text in index.execute("select run, result from results order by rowid"):
                found.setdefault(name, []).append(_result(text))
            runs = index.execute(
                "select name, created, command, planned, machine, facts, tags, merged_from from runs "
                "order by created, name"
            ).fetchall()
            return tuple(_entry(row, found.get(row[0], ())) for row in runs)
    except UNREADABLE as error:
        raise UsageError(f"--history: {path} cannot be read ({error}); {how_to_rebuild(path)}") from None


def latest_results(
    path: Path, suites: Iterable[str], models: Collection[str], most: int
) -> tuple[Result, ...]:
    """These models' results among the ``most`` latest of the suites, latest first. Raises ``UNREADABLE``."""
    wanted = tuple(dict.fromkeys(suites))
    places = ", ".join("?" * len(wanted))
    with _opened(path) as index:
        rows = index.execute(
            "select model, result from results join runs on runs.name = results.run "  # noqa: S608 - only places
            f"where suite in ({places}) order by created desc, results.rowid limit ?",
            (*wanted, most),
        )
        return tuple(_result(text) for model, text in rows if model in models)


def write_entry(path: Path, entry: IndexedRun) -> None:
    """Adds or replaces the run. Raises ``sqlite3.Error``, ``OSError`` or ``Damaged``."""
    with _opened(path) as index, _transaction(index):
        _put(index, entry)


def rewrite(path: Path, entries: Iterable[IndexedRun]) -> int:
    """Replaces all entries of the index, or a damaged file. Returns the number of removed runs.

    Raises ``sqlite3.Error`` and ``OSError``.
    """
    try:
        return _rewritten(path, entries)
    except (Damaged, sqlite3.DatabaseError) as error:
        if isinstance(error, sqlite3.OperationalError):  # locked, full, read-only: not damaged
            raise
        for name in (path.name, f"{path.name}-journal"):
            path.with_name(name).unlink(missing_ok=True)
        return _rewritten(path, entries)


def _rewritten(path: Path, entries: Iterable[IndexedRun]) -> int:
    with _opened(path) as index, _transaction(index):
        before = {name for (name,) in index.execute("select name from runs")}
        index.execute("delete from results")
        index.execute("delete from runs")
        kept = set()
        for entry in entries:
            _put(index, entry)
            kept.add(entry.name)
        return len(before - kept)


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The index, with its tables. Raises ``Damaged`` for a file of another program or version."""
    index = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
    with contextlib.closing(index):
        index.execute("pragma foreign_keys = on")
        (version,) = index.execute("pragma user_version").fetchone()
        if version == 0:
            with _transaction(index):
                _make_tables(index)
        elif version != VERSION:
            raise Damaged(f"it has format {version}, and this program's is {VERSION}")
        yield index


def _make_tables(index: sqlite3.Connection) -> None:
    """Creates the tables in an empty file. A database of another program is not changed."""
    (version,) = index.execute("pragma user_version").fetchone()  # another program may have been first
    (others,) = index.execute("select count(*) from sqlite_master").fetchone()
    if version == 0 and others:
        raise Damaged("it is a database of another program")
    for statement in TABLES.split(";"):
        index.execute(statement)
    index.execute(f"pragma user_version = {VERSION}")


@contextmanager
def _transaction(index: sqlite3.Connection) -> Iterator[None]:
    """A transaction that locks out other writers from its start."""
    index.execute("begin immediate")
    try:
        yield
    except BaseException:
        index.execute("rollback")
        raise
    index.execute("commit")


def _put(index: sqlite3.Connection, entry: IndexedRun) -> None:
    index.execute("delete from results where run = ?", (_text(entry.name),))
    index.execute(
        "insert or replace into runs values (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            _text(entry.name),
            entry.created.isoformat(timespec="seconds"),
            _text(entry.command),
            entry.planned,
            _text(entry.machine),
            json.dumps(dict(entry.facts)),
            json.dumps(entry.tags),
            json.dumps(entry.merged_from),
        ),
    )
    index.executemany(
        "insert into results values (?, ?, ?, ?, ?, ?)",
        [
            (
                _text(entry.name),
                _text(result.name),
                _text(result.conditions.get("suite", "")),
                _text(result.compiler),
                result.status or "",
                json.dumps(to_json(result)),
            )
            for result in entry.results
        ],
    )


def _text(text: str) -> str:
    """Text for SQLite, which needs UTF-8: a lone surrogate, as in a file name, becomes an escape."""
    return text.encode(errors="backslashreplace").decode()


def _result(text: str) -> Result:
    return from_json(Result, json.loads(text))


def _entry(row: tuple[str, str, str, int, str, str, str, str], results: Iterable[Result]) -> IndexedRun:
    name, created, command, planned, machine, facts, tags, merged_from = row
    return IndexedRun(
        name=name,
        created=datetime.fromisoformat(created),
        command=command,
        planned=planned,
        machine=machine,
        facts=json.loads(facts),
        tags=tuple(json.loads(tags)),
        merged_from=tuple(json.loads(merged_from)),
        results=tuple(results),
    )
