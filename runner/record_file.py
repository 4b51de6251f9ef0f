"""``records.jsonl``: one record a line, appended and synced, never rewritten."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from harness.codec import from_json, to_json
from harness.schema import SCHEMA_VERSION, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The readable records of a file, in its order, and a sentence for each line that is not one."""

    records: tuple[Record, ...]
    damage: tuple[str, ...]


def append_record(path: Path, record: Record) -> None:
    """Adds one line and waits until it is on the disk. ``OSError`` when it cannot be."""
    line = json.dumps(to_json(record), allow_nan=False, ensure_ascii=False) + "\n"
    with path.open("ab") as file:
        if file.tell() and not _ends_in_newline(path):
            file.write(b"\n")  # a run that was killed left a torn line; keep it apart from ours
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def read_records(path: Path) -> Records:
    """Every record that can be read; the first of two for the same (job, candidate) counts."""
    found: dict[tuple[str, str], Record] = {}
    damage = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = _parse(line)
        except ValueError as error:
            damage.append(f"{path}: line {number} is damaged ({error}); the other records are used")
            continue
        if found.setdefault((record.job.key, record.candidate), record) is not record:
            damage.append(
                f"{path}: line {number} repeats {record.candidate} of {record.job.key}; the first counts"
            )
    return Records(records=tuple(found.values()), damage=tuple(damage))


def _parse(line: bytes) -> Record:
    try:
        value = json.loads(line.decode())
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON, or was cut short") from None
    version = value.get("schema_version") if isinstance(value, dict) else None
    if not isinstance(version, int) or version < 1:
        raise ValueError("it is not a record")
    if version > SCHEMA_VERSION:
        raise ValueError(f"it has format version {version}, newer than this program's {SCHEMA_VERSION}")
    return from_json(Record, value)


def _ends_in_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
