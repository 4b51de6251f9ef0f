"""Joins runs that belong together into a new run. The source runs stay unchanged."""

from __future__ import annotations

import filecmp
import itertools
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.codec import from_json, to_json
from harness.devices import PLATFORMS
from harness.schema import SCHEMA_VERSION, Job, Record
from runner.errors import UsageError
from runner.store.run_folder import RUN, RunFolder

OWN_FILES = ("job.json", "output.log")  # of a case's folder: these are joined, all others copied
MACHINE_FACTS = ("torch", "torch_git", *PLATFORMS, "cpu", "cpu_count", "cpus_usable")
DEVICE_FACTS = ("device_name", "cudnn")

Result = tuple[str, str]
"""Identifies a result: the job's key and the candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One of the runs to join. ``plan``: of the whole run, also if this run measured a part of it.

    ``formats``: the record formats in the file. ``damage``: sentences about unreadable lines. ``about``: the
    content of ``run.json`` without the plan.
    """

    folder: Path
    plan: tuple[Job, ...]
    records: tuple[Record, ...]
    formats: frozenset[int] = frozenset()
    damage: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)


def merge(
    paths: Sequence[Path], output_dir: Path | None, command: Sequence[str]
) -> tuple[RunFolder, tuple[str, ...]]:
    """A new run folder with the results, logs and job files of these runs, and notes for the user.

    The new plan contains the plans of all runs, so that ``--resume`` can measure the missing results. The
    new ``run.json`` names the source of each result. ``UsageError`` if the runs do not belong together, if
    there is nothing to join, or if a folder cannot be read or written.
    """
    _check_paths(paths, output_dir)
    sources = [load(path) for path in paths]
    _check_together(sources)
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
            "merge again; the source runs are unchanged"
        ) from None
    return folder, _notes(sources, jobs, folder)


def load(path: Path) -> Source:
    """One run on disk: finished, partial, or killed while writing. Raises ``UsageError`` without a run."""
    folder = RunFolder.reopen("--merge", path)
    try:
        content = folder.read()
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
            f"--merge: {path / RUN} is damaged ({error}); move this file away to join only the records"
        ) from None
    return Source(
        folder=path,
        plan=plan,
        records=content.records,
        formats=formats,
        damage=content.damage,
        about=about,
    )


def _check_paths(paths: Sequence[Path], output_dir: Path | None) -> None:
    if len(paths) < 2:
        raise UsageError("--merge: one run cannot be merged with itself; name at least two folders")
    resolved = [path.resolve() for path in paths]
    for place, path in enumerate(resolved):
        if path in resolved[:place]:
            raise UsageError(f"--merge: {paths[place]} is named twice; name each run once")
    target = (output_dir or Path("logs")).resolve()
    for path, given in zip(resolved, paths, strict=True):
        if target.is_relative_to(path):
            raise UsageError(
                f"--output-dir: {target} is inside {given}; name a folder outside of the source runs"
            )


def _formats(content: bytes) -> frozenset[int]:
    """The format versions of the lines, including versions that this program cannot read."""
    versions = set()
    for line in content.split(b"\n"):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue  # already reported when the records were read
        version = value.get("schema_version") if isinstance(value, dict) else None
        if type(version) is int and version > 0:
            versions.add(version)
    return frozenset(versions)


def _joined_plan(sources: Sequence[Source]) -> tuple[Job, ...]:
    """Every planned or measured job once, with the candidates of all runs."""
    jobs: dict[str, Job] = {}
    for source in sources:
        for job in (*source.plan, *(_with_candidate(record) for record in source.records)):
            planned = jobs.setdefault(job.key, job)
            candidates = tuple(dict.fromkeys((*planned.candidates, *job.candidates)))
            jobs[job.key] = replace(planned, candidates=candidates)
    return tuple(jobs.values())


def _with_candidate(record: Record) -> Job:
    """The record's job, with the record's candidate added if it is missing."""
    candidates = dict.fromkeys((*record.job.candidates, record.candidate))
    return replace(record.job, candidates=tuple(candidates))


def _first_of_each(sources: Iterable[Source]) -> list[list[Record]]:
    """The records of each run, without records that an earlier run also has (they are identical)."""
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
    """Appends the run's log of this job to the joined log, and copies its other files."""
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
    """Copies a file. If the name is taken, the copy gets the next free name."""
    target, number = wanted, 1
    while target.exists():
        if filecmp.cmp(path, target, shallow=False):
            return
        number += 1
        target = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


def _notes(sources: Sequence[Source], jobs: Sequence[Job], folder: RunFolder) -> tuple[str, ...]:
    """Notes on the joined run: damaged lines, and planned results that no run has."""
    notes = [sentence for source in sources for sentence in source.damage]
    measured = {result_of(record) for source in sources for record in source.records}
    planned = [(job.key, candidate) for job in jobs for candidate in job.candidates]
    missing = [result for result in planned if result not in measured]
    if missing:
        key, candidate = missing[0]
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        notes.append(
            f"Planned but in none of these runs: {candidate} of {key}{others} "
            f"({len(missing)} of {len(planned)} results); {folder.how_to_go_on()}"
        )
    return tuple(notes)


# -- what runs must have in common ------------------------------------------------


def _check_together(sources: Sequence[Source]) -> None:
    """Raises ``UsageError`` for the first difference that forbids joining two runs."""
    for source in sources:
        newest = max(source.formats, default=0)
        if newest > SCHEMA_VERSION:
            raise UsageError(
                f"--merge: {source.folder} has records in format {newest}, newer than this program's "
                f"{SCHEMA_VERSION}; merge with the program that wrote them"
            )
    facts = [_facts(source) for source in sources]
    for (one, first), (other, second) in itertools.combinations(zip(sources, facts, strict=True), 2):
        for name in first:
            if name in second and first[name] != second[name]:
                here, there = _values(first[name]), _values(second[name])
                raise _apart(one, other, f"{name} is {here} in the first and {there} in the second")
        _check_suite_files(one, other)
        _check_results(one, other)


def _apart(one: Source, other: Source, why: str) -> UsageError:
    return UsageError(
        f"--merge: {one.folder} and {other.folder} do not belong together: {why}; "
        "compare the two runs instead of joining them"
    )


def _facts(source: Source) -> dict[str, frozenset[str]]:
    """(displayed name, value) of all facts that must be equal if two runs both have them."""
    encoded: dict[str, set[str]] = {}
    for name, value in _named_facts(source):
        encoded.setdefault(name, set()).add(json.dumps(to_json(value), ensure_ascii=False))
    return {name: frozenset(values) for name, values in encoded.items()}


def _named_facts(source: Source) -> Iterator[tuple[str, Any]]:
    for version in source.formats:
        yield "the record format", version
    for record in source.records:
        facts, job = record.environment, record.job
        yield from ((name, facts[name]) for name in MACHINE_FACTS if name in facts)
        yield from ((f"{name} of {job.device}", facts[name]) for name in DEVICE_FACTS if name in facts)
        if "python" in facts:
            yield "python", ".".join(str(facts["python"]).split(".")[:2])
        if "threads" in facts and job.protocol.threads is None:
            yield "threads", facts["threads"]
    for job in (*source.plan, *(record.job for record in source.records)):
        suite = Path(job.case.suite).name
        for name, value in to_json(job.protocol).items():
            yield f"{name} in the protocol of suite {suite}", value
        for name, value in to_json(job.case).items():
            yield f"{name} of {job.key}", value


def _values(encoded: frozenset[str]) -> str:
    return " and ".join(str(json.loads(text)) for text in sorted(encoded))


def _check_suite_files(first: Source, second: Source) -> None:
    """Checks the paths of suite files, because a path is part of the names of the suite's jobs."""
    here, there = _suites(first), _suites(second)
    for path in here - there:
        for namesake in there - here:
            if Path(path).name == Path(namesake).name:
                raise UsageError(
                    f"--merge: suite {Path(path).name} is {path} in {first.folder} and {namesake} in "
                    f"{second.folder}; run both with the file at one path, or compare the two runs instead"
                )


def _suites(source: Source) -> set[str]:
    return {job.case.suite for job in (*source.plan, *(record.job for record in source.records))}


def _check_results(one: Source, other: Source) -> None:
    """Raises ``UsageError`` if both runs have a result with different values."""
    here = {result_of(record): record for record in one.records}
    for record in other.records:
        same = here.get(result_of(record))
        if same is None:
            continue
        first, second = to_json(same), to_json(record)
        differing = [name for name in first if first[name] != second[name]]
        if differing:
            raise _apart(
                one,
                other,
                f"both measured {record.candidate} of {record.job.key}, with other {', '.join(differing)}: "
                f"{_outcome(same)} in the first, {_outcome(record)} in the second",
            )


def result_of(record: Record) -> Result:
    return record.job.key, record.candidate


def _outcome(record: Record) -> str:
    rounds = 0 if record.samples is None else len(record.samples)
    return f"{record.status.value} with {rounds} rounds, ended {record.ended or 'at no known time'}"
