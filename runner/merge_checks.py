"""What runs must have in common to be joined into one, and the sentence for what they have not."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.codec import to_json
from harness.schema import SCHEMA_VERSION, Job, Record
from runner.errors import UsageError

MACHINE_FACTS = ("torch", "torch_git", "cuda", "cpu", "cpu_count", "cpus_usable")
DEVICE_FACTS = ("device_name", "cudnn")

Result = tuple[str, str]
"""Which result: the job's key and the candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One of the runs to join: its folder, its plan (the whole one, if it was a part), its records.

    ``formats`` are the record formats in its file, ``damage`` the sentences about unreadable lines,
    ``about`` what its ``run.json`` says beside the plan.
    """

    folder: Path
    plan: tuple[Job, ...]
    records: tuple[Record, ...]
    formats: frozenset[int] = frozenset()
    damage: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)


def check_together(sources: Sequence[Source]) -> None:
    """Raises ``UsageError`` for the first thing in which two of the runs do not belong together."""
    for source in sources:
        newest = max(source.formats, default=0)
        if newest > SCHEMA_VERSION:
            raise UsageError(
                f"--merge: {source.folder} has records in format {newest}, newer than this program's "
                f"{SCHEMA_VERSION}; merge with the program that wrote them"
            )
    known = [_facts(source) for source in sources]
    for (one, first), (other, second) in itertools.combinations(zip(sources, known, strict=True), 2):
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
    """All that must be equal where two runs both know it, under the name that a person reads."""
    found: dict[str, set[str]] = {}
    for name, value in _named_facts(source):
        found.setdefault(name, set()).add(json.dumps(to_json(value), ensure_ascii=False))
    return {name: frozenset(values) for name, values in found.items()}


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


def _check_suite_files(one: Source, other: Source) -> None:
    """The path of a suite's file is part of its jobs' names: at another path they would be other jobs."""
    here, there = _suites(one), _suites(other)
    for path in here - there:
        for namesake in there - here:
            if Path(path).name == Path(namesake).name:
                raise UsageError(
                    f"--merge: suite {Path(path).name} is {path} in {one.folder} and {namesake} in "
                    f"{other.folder}; run both with the file at one path, or compare the two runs instead"
                )


def _suites(source: Source) -> set[str]:
    return {job.case.suite for job in (*source.plan, *(record.job for record in source.records))}


def _check_results(one: Source, other: Source) -> None:
    """The same result may be in both runs only if it is the same to the last digit."""
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
