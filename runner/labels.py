"""Names as text: suites given by path, file names, and whatever a model may be called."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from harness.schema import Record, Scalar


def plain(text: str) -> str:
    """One printable line: control characters, line ends and text-direction marks become visible escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def file_part(text: str) -> str:
    """``text`` as part of a file name on any system."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip(".-") or "unnamed"


def suite_labels(suites: Iterable[str]) -> dict[str, str]:
    """A short name for each suite, safe in file names, different for different suites.

    A suite's name, or the stem of its file's path; where two would be called
    the same, a path's name has its digest added.
    """
    names = tuple(dict.fromkeys(suites))
    stems = {suite: file_part(_stem(suite)) for suite in names}
    taken = list(stems.values())
    return {
        suite: stem if taken.count(stem) == 1 or stem == suite else f"{stem}-{_digest(suite)}"
        for suite, stem in stems.items()
    }


def where(record: Record, labels: dict[str, str]) -> str:
    """``tiny_gpt NanoGPT_addition (training, float32, cpu), inductor``"""
    case, job = record.job.case, record.job
    conditions = f"{case.mode.value}, {job.dtype}, {job.device}"
    return f"{labels[case.suite]} {case.name} ({conditions}), {record.candidate}"


def merged_facts(records: Iterable[Record]) -> dict[str, Scalar]:
    """The environment facts of all records; where they differ, all values in order of appearance."""
    values: dict[str, dict[str, Scalar]] = {}
    for record in records:
        for name, value in record.environment.items():
            values.setdefault(name, {}).setdefault(str(value), value)
    return {
        name: next(iter(found.values())) if len(found) == 1 else " | ".join(found)
        for name, found in values.items()
    }


def _stem(suite: str) -> str:
    return re.split(r"[/\\]", suite)[-1].removesuffix(".py")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
