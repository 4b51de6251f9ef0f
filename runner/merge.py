"""Joins runs that belong together into a new one. The runs that are joined stay as they are."""

from __future__ import annotations

import filecmp
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.codec import from_json
from harness.schema import Job, Record
from runner.errors import UsageError
from runner.merge_checks import Result, Source, check_together, result_of
from runner.run_folder import RUN, RunFolder

OWN_FILES = ("job.json", "output.log")  # of a case's folder: these are joined, all others copied


def merge(
    paths: Sequence[Path], output_dir: Path | None, command: Sequence[str]
) -> tuple[RunFolder, tuple[str, ...]]:
    """A new run folder with the results, logs and job files of these runs, and notes for the person.

    Its plan is everything that any of them planned, so that ``--resume`` can finish what none has
    measured. Its ``run.json`` says where each result came from. Raises ``UsageError`` when the runs
    do not belong together, when there is nothing to join, or when a folder cannot be read or written.
    """
    _check_paths(paths, output_dir)
    sources = [load(path) for path in paths]
    check_together(sources)
    if not any(source.records for source in sources):
        raise UsageError("--merge: none of these runs has a record; measure something first")
    jobs = _joined_plan(sources)
    taken = _first_of_each(sources)
    origins = [_origin(source, records) for source, records in zip(sources, taken, strict=True)]
    folder = RunFolder.create(output_dir, jobs, command, {"merged_from": origins})
    try:
        for job in jobs:
            for source in sources:
                _copy_case(source, job, folder)
        places = {job.key: place for place, job in enumerate(jobs)}
        for record in sorted((r for group in taken for r in group), key=lambda r: places[r.job.key]):
            folder.append(record)
    except OSError as error:
        raise UsageError(
            f"--merge: stopped while writing {folder.path} ({error.strerror}): remove that folder and "
            "merge again; the runs themselves are untouched"
        ) from None
    return folder, _notes(sources, jobs, folder)


def load(path: Path) -> Source:
    """One run as it is on disk: finished, partial, or killed while writing. ``UsageError`` for none."""
    folder = RunFolder.reopen("--merge", path)
    try:
        found = folder.read()
        formats = _formats(folder.records_path.read_bytes())
        about: dict[str, Any] = {}
        if (folder.path / RUN).is_file():
            about = json.loads((folder.path / RUN).read_text(encoding="utf-8"))
        planned = about.pop("plan", None) or about.get("jobs", [])
        about.pop("jobs", None)
        plan = tuple(from_json(Job, job) for job in planned)
    except OSError as error:
        raise UsageError(f"--merge: {path} cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            f"--merge: {path / RUN} is damaged ({error}); move it away to join the records alone"
        ) from None
    return Source(
        folder=path,
        plan=plan,
        records=found.records,
        formats=formats,
        damage=found.damage,
        about=about,
    )


def _check_paths(paths: Sequence[Path], output_dir: Path | None) -> None:
    if len(paths) < 2:
        raise UsageError("--merge: one run has nothing to be joined with; name at least two folders")
    resolved = [path.resolve() for path in paths]
    for place, path in enumerate(resolved):
        if path in resolved[:place]:
            raise UsageError(f"--merge: {paths[place]} is named twice; name each run once")
    target = (output_dir or Path("logs")).resolve()
    for path, given in zip(resolved, paths, strict=True):
        if target.is_relative_to(path):
            raise UsageError(
                f"--output-dir: {target} lies in {given}, which stays as it is; name a folder elsewhere"
            )


def _formats(content: bytes) -> frozenset[int]:
    """The formats that the lines say they have, also those that this program cannot read."""
    found = set()
    for line in content.split(b"\n"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue  # reading the records has already said so
        version = value.get("schema_version") if isinstance(value, dict) else None
        if type(version) is int and version > 0:
            found.add(version)
    return frozenset(found)


def _joined_plan(sources: Sequence[Source]) -> tuple[Job, ...]:
    """Every job that was planned or measured, once, with all candidates that it has anywhere."""
    jobs: dict[str, Job] = {}
    for source in sources:
        for job in (*source.plan, *(_with_candidate(record) for record in source.records)):
            known = jobs.setdefault(job.key, job)
            candidates = tuple(dict.fromkeys((*known.candidates, *job.candidates)))
            jobs[job.key] = replace(known, candidates=candidates)
    return tuple(jobs.values())


def _with_candidate(record: Record) -> Job:
    """The record's job, which has the record's candidate whoever wrote it."""
    candidates = dict.fromkeys((*record.job.candidates, record.candidate))
    return replace(record.job, candidates=tuple(candidates))


def _first_of_each(sources: Iterable[Source]) -> list[list[Record]]:
    """For each run its records, without those that an earlier one has too (they are identical)."""
    seen: set[Result] = set()
    taken = []
    for source in sources:
        taken.append([record for record in source.records if result_of(record) not in seen])
        seen.update(result_of(record) for record in source.records)
    return taken


def _origin(source: Source, records: Iterable[Record]) -> dict[str, Any]:
    results: dict[str, list[str]] = {}
    for record in records:
        results.setdefault(record.job.key, []).append(record.candidate)
    return {"folder": str(source.folder.resolve()), **source.about, "results": results}


def _copy_case(source: Source, job: Job, folder: RunFolder) -> None:
    """Adds what the run keeps of this job: its log to the joined log, other files beside it."""
    origin = source.folder / "cases" / job.key
    if not origin.is_dir():
        return
    log = folder.open_case(job)
    theirs = origin / "output.log"
    if theirs.is_file():
        words = theirs.read_bytes()
        if words not in log.read_bytes():
            with log.open("ab") as file:
                file.write(f"# from {theirs.resolve()}\n".encode() + words)
                if not words.endswith(b"\n"):
                    file.write(b"\n")
    for path in sorted(origin.rglob("*")):
        name = path.relative_to(origin)
        if path.is_file() and not path.is_symlink() and str(name) not in OWN_FILES:
            _copy_beside(path, log.parent / name)


def _copy_beside(path: Path, wanted: Path) -> None:
    """Copies a file; where another of this name is there already, under the next free one."""
    target, number = wanted, 1
    while target.exists():
        if filecmp.cmp(path, target, shallow=False):
            return
        number += 1
        target = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


def _notes(sources: Sequence[Source], jobs: Sequence[Job], folder: RunFolder) -> tuple[str, ...]:
    """What the person should know of the joined run: damaged lines, and results that nobody has."""
    notes = [sentence for source in sources for sentence in source.damage]
    measured = {result_of(record) for source in sources for record in source.records}
    planned = [(job.key, candidate) for job in jobs for candidate in job.candidates]
    missing = [result for result in planned if result not in measured]
    if missing:
        key, candidate = missing[0]
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        notes.append(
            f"Planned but in none of these runs: {candidate} of {key}{others} "
            f"({len(missing)} of {len(planned)} results); go on with: python runner.py --resume {folder.path}"
        )
    return tuple(notes)
