"""``expected.csv``: the expected statuses and graph breaks of runs; ``--update-expected`` writes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runner.errors import UsageError
from runner.labels import plain
from runner.reports.parts.cells import csv_bytes
from runner.runs.compare.csv_file import COLUMNS, read_csv_files
from runner.runs.compare.load import load
from runner.runs.compare.run import NO_RECORD, Result
from runner.store.run_folder import write_asked

FLAG = "--update-expected"
NAMED = {"suite": "suite", "name": "name", "mode": "mode", "device": "device", "dtype": "precision"}
CONDITIONS = {**NAMED, **{column: name for name, column in COLUMNS.items() if column not in NAMED}}
"""Column that identifies a result -> our name of the condition."""

OUTCOMES = ("status", "graph_breaks")
HEADER = (*CONDITIONS, *OUTCOMES)

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """The changes to the file's rows."""

    path: Path
    rows: int
    added: tuple[str, ...]
    changed: tuple[str, ...]
    kept: int  # rows of results that the run has not measured
    notes: tuple[str, ...]


def update_expected(path: Path, run: Path) -> Updated:
    """Writes the run's results into the file; rows of other results stay. Raises ``UsageError``."""
    found = load(FLAG, run)
    measured = [result for result in found.results if result.status not in (None, NO_RECORD)]
    if not measured:
        raise UsageError(f"{FLAG}: {run} has no status; give a run, or an accuracy file of PyTorch's runner")
    before = _existing(path)
    now = {_identity(result): result for result in measured}
    added = [result for key, result in now.items() if key not in before]
    changed = [
        f"{result.title}: {_outcome(before[key])} -> {_outcome(result)}"
        for key, result in now.items()
        if key in before and _outcome(before[key]) != _outcome(result)
    ]
    joined = {**before, **now}
    write_asked(FLAG, path, expected_bytes(joined.values()))
    return Updated(
        path=path,
        rows=len(joined),
        added=tuple(result.title for result in added),
        changed=tuple(changed),
        kept=len(before.keys() - now.keys()),
        notes=found.notes,
    )


def expected_bytes(results: Iterable[Result]) -> bytes:
    """The file, sorted, so that a change of one result changes one line."""
    return csv_bytes(HEADER, [(*key, *_outcomes(r)) for key, r in sorted((_identity(r), r) for r in results)])


def _existing(path: Path) -> dict[Row, Result]:
    if not path.exists():
        return {}
    try:
        run = read_csv_files(FLAG, [path])
        header = path.read_text(encoding="utf-8-sig").partition("\n")[0].strip().split(",")
    except OSError as error:
        raise UsageError(f"{FLAG}: {path} cannot be read ({error.strerror})") from None
    if tuple(header) != HEADER:
        raise UsageError(f"{FLAG}: {path} is another kind of file; name a new file")
    return {_identity(result): result for result in run.results}


def _identity(result: Result) -> Row:
    known = {"name": plain(result.name), **result.conditions}
    return tuple(known.get(name, "") for name in CONDITIONS.values())


def _outcomes(result: Result) -> tuple[str, int | None]:
    return result.status or "", result.graph_breaks


def _outcome(result: Result) -> str:
    breaks = result.graph_breaks
    return result.status or "" if breaks is None else f"{result.status}, {breaks} graph breaks"
