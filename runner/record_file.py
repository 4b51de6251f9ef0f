"""``records.jsonl``: one record a line, appended and synced, never rewritten."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.codec import from_json, to_json
from harness.schema import SCHEMA_VERSION, Record, Samples, Scalar
from runner.labels import plain

CUT_SHORT = b" <- cut short: the run was killed while it wrote this line"
"""Ends what a killed run left of a line. No record can end so: it is not JSON."""

MOST_DIGITS = 20
DIGITS_ALIKE = bytes.maketrans(b"123456789", b"0" * 9)
MANY_DIGITS = b"0" * (MOST_DIGITS + 1)
SMALLEST_SHARE = 1e-9
LONGEST_REASON = 200  # characters: a damaged line may be as long as it likes


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The readable records of a file, in its order, and a sentence for each line that is not one."""

    records: tuple[Record, ...]
    damage: tuple[str, ...]


def append_record(path: Path, record: Record) -> None:
    """Adds one line and waits until it is on the disk.

    ``OSError`` when it cannot be; the file then ends where it ended before.
    """
    text = json.dumps(to_json(record), allow_nan=False, ensure_ascii=False) + "\n"
    # half a surrogate pair, as in a file name that is not UTF-8, becomes JSON's own escape
    line = text.encode(errors="backslashreplace")
    # a run that was killed may have left a torn line; keep it apart from ours
    _append(path, line if _ends_in_newline(path) else b"\n" + line)


def mend_last_line(path: Path) -> str | None:
    """Ends a last line that has no end. A sentence when it was cut short, and so is no record.

    Nothing that stands in the file is changed: what is left of the torn line is marked as such,
    and readers pass over it from then on. ``OSError`` when the file cannot be written.
    """
    if _ends_in_newline(path):
        return None
    lines = path.read_bytes().split(b"\n")
    try:
        _parse(lines[-1])
    except ValueError:
        _append(path, CUT_SHORT + b"\n")
        where = f"{plain(str(path))}: line {len(lines)}"
        return f"{where} was cut short when the run was killed; its record is measured again"
    _append(path, b"\n")
    return None


def read_records(path: Path) -> Records:
    """Every record that can be read; the first of two for the same (job, candidate) counts."""
    found: dict[tuple[str, str], Record] = {}
    damage = []
    shown = plain(str(path))
    alike = _Alike()
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip() or line.endswith(CUT_SHORT):
            continue
        try:
            record = alike.of(_parse(line))
        except ValueError as error:
            damage.append(f"{shown}: line {number} is damaged ({_cut(error)}); the other records are used")
            continue
        if found.setdefault((record.job.key, record.candidate), record) is not record:
            candidate = _cut(record.candidate)
            damage.append(f"{shown}: line {number} repeats {candidate} of {record.job.key}; the first counts")
    return Records(records=tuple(found.values()), damage=tuple(damage))


def _lines(path: Path) -> Iterator[bytes]:
    """Without their ends, one after the other: a large run need not fit into memory twice."""
    with path.open("rb") as file:
        for line in file:
            yield line.removesuffix(b"\n")


class _Alike:
    """Lets records that follow each other share what is equal: the job, the environment, eager's times.

    It saves memory, and makes what is derived of a shared part easy to keep.
    """

    def __init__(self) -> None:
        self._last: Record | None = None

    def of(self, record: Record) -> Record:
        last, self._last = self._last, record
        if last is None:
            return record
        shared: dict[str, Any] = {}
        if record.job == last.job:
            shared["job"] = last.job
        elif record.job.protocol == last.job.protocol:
            shared["job"] = replace(record.job, protocol=last.job.protocol)
        if _same_facts(record.environment, last.environment):
            shared["environment"] = last.environment
        if record.samples is not None and last.samples is not None:
            shared["samples"] = _sharing_columns(record.samples, last.samples)
        self._last = replace(record, **shared)
        return self._last


def _same_facts(facts: Mapping[str, Scalar], others: Mapping[str, Scalar]) -> bool:
    """Equal, and of the same types: Python takes 1, 1.0 and True for equal."""
    return facts == others and [type(v) for v in facts.values()] == [type(v) for v in others.values()]


def _sharing_columns(samples: Samples, last: Samples) -> Samples:
    columns = ("baseline_s", "baseline_position", "baseline_minor_faults", "candidate_minor_faults")
    return replace(
        samples, **{c: getattr(last, c) for c in columns if getattr(samples, c) == getattr(last, c)}
    )


def _parse(line: bytes) -> Record:
    try:
        # asking of every integer takes as long as reading all the rest
        many = MANY_DIGITS in line.translate(DIGITS_ALIKE)
        value = json.loads(line.decode(), parse_int=_whole if many else None)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("it is not JSON, or was cut short") from None
    version = value.get("schema_version") if isinstance(value, dict) else None
    if not isinstance(version, int) or version < 1:
        raise ValueError("it is not a record")
    if version > SCHEMA_VERSION:
        raise ValueError(f"it has format version {version}, newer than this program's {SCHEMA_VERSION}")
    record = from_json(Record, value)
    _check_protocol(record)
    return record


def _whole(digits: str) -> int:
    """No count and no size is larger, and what is larger is no number to reckon with."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)


def _check_protocol(record: Record) -> None:
    """Shares that are none would break every number that is derived with them."""
    protocol = record.job.protocol
    for name, least in (("precision", SMALLEST_SHARE), ("noise_threshold", 0.0), ("alpha", 0.0)):
        share = getattr(protocol, name)
        if not least <= share < 1:
            raise ValueError(f"{name} {share} is not a share between 0 and 1")


def _append(path: Path, data: bytes) -> None:
    """All of ``data`` at the end of the file and on the disk, or ``OSError`` and the file as it was."""
    with path.open("ab", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        try:
            write_all(file, data)
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(end)
            raise


def write_all(file: io.FileIO, data: bytes) -> None:
    """All of it: one write may take only a part, for example of the room that is left on a disk."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) or 0 :]


def _ends_in_newline(path: Path) -> bool:
    """Also true of a file that is empty or not there."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return True
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except FileNotFoundError:
        return True


def _cut(text: object) -> str:
    """One printable line of bearable length."""
    line = plain(str(text))
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]}..."
