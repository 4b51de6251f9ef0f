"""``records.jsonl``: one record on each line, appended and synced; a finished run may be packed (gzip)."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from harness.codec import from_json, to_json
from harness.schema import SCHEMA_VERSION, STOPPED, Record
from runner.names import counted, plain, reason
from runner.store.joined import Key, flat, key_of, results_of

ENDING = ".gz"
# appended to an incomplete line of a killed run. It is not JSON, so no record can end with it
CUT_SHORT = b" <- cut short: the run was killed while it wrote this line"

CRC = re.compile(rb', "crc": "([0-9a-f]{8})"}$')  # a record's last field: of the bytes before it
MOST_NAMED = 10  # lines that are not used, each with a sentence
MOST_DIGITS = 20
DIGITS_ALIKE = bytes.maketrans(b"123456789", b"0" * 9)
MANY_DIGITS = b"0" * (MOST_DIGITS + 1)
SMALLEST_SHARE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What a file of records holds, in its order, and sentences about the lines that cannot be read.

    ``records``: the results, one of each (job, candidate). ``processes``: the records of which they are made.

    ``unused`` is the number of these lines. If every planned result has a record all the same, ``replaced``
    is one sentence about them, and ``damage`` is empty.
    """

    records: tuple[Record, ...]
    processes: tuple[Record, ...] = ()
    damage: tuple[str, ...] = ()
    unused: int = 0
    replaced: str = ""


def whole(records: Iterable[Record]) -> set[tuple[str, str]]:
    """The job's key and the candidate of each result that Ctrl-C has not cut short."""
    return {(record.job.key, record.candidate) for record in records if record.rounds_ended != STOPPED}


def append_record(path: Path, record: Record) -> None:
    """Appends one line and syncs it to the disk. ``OSError`` if this fails; the file is then as before."""
    text = json.dumps(to_json(record), allow_nan=False, ensure_ascii=False)
    # a lone surrogate, as in a file name that is not UTF-8, becomes a JSON escape
    content = text.encode(errors="backslashreplace").removesuffix(b"}")
    line = content + b', "crc": "%08x"}\n' % zlib.crc32(content)
    # a killed run may have left an incomplete line; the new record needs its own line
    _append(path, line if _ends_in_newline(path) else b"\n" + line)


def end_last_line(path: Path) -> str | None:
    """Ends a last line that has no end: if it is no record, by ``CUT_SHORT``, and returns a sentence."""
    if _ends_in_newline(path):
        return None
    lines, why = path.read_bytes().split(b"\n"), None
    try:
        _parse(lines[-1].removeprefix(BOM_UTF8))
    except ValueError:
        why = "was cut short when the run was killed; its record is measured again"
    _append(path, CUT_SHORT + b"\n" if why else b"\n")
    return why and f"{plain(str(path))}: line {len(lines)} {why}"


def read_records(path: Path) -> Records:
    """Every readable record. If a process has two, the first counts that was not ``STOPPED``."""
    records: dict[Key, Record] = {}
    damage: list[str] = []
    with opened(path) as file:  # line by line: a large run may not fit into memory twice
        for number, ended in enumerate(file, start=1):
            line = (ended if number > 1 else ended.removeprefix(BOM_UTF8)).removesuffix(b"\n")
            if not line.strip() or line.endswith(CUT_SHORT):
                continue
            try:
                whole_record = _parse(line)
                key = key_of(whole_record)
                if key in records and records[key].rounds_ended != STOPPED:
                    repeated = f"{reason(whole_record.candidate)} of {whole_record.job.key}"
                    damage.append(f"line {number} repeats {repeated}; the first counts")
                    continue
                parts = [whole_record] if whole_record.schema_version > 2 else flat(whole_record)
                records.update({key_of(part): part for part in parts})
            except ValueError as error:
                damage.append(f"line {number} is damaged ({reason(error)}); the other records are used")
    unused, more = len(damage), len(damage) - MOST_NAMED
    if more > 0:
        damage[MOST_NAMED:] = [f"{counted(more, 'more line')} cannot be used"]
    told = tuple(f"{plain(str(path))}: {sentence}" for sentence in damage)
    processes = tuple(records.values())
    return Records(records=results_of(processes), processes=processes, damage=told, unused=unused)


def _parse(line: bytes) -> Record:
    checksum = CRC.search(line)
    if checksum is not None and int(checksum[1], 16) != zlib.crc32(line[: checksum.start()]):
        raise ValueError("its checksum does not fit")
    try:
        # checking every integer would double the time of reading
        many = MANY_DIGITS in line.translate(DIGITS_ALIKE)
        value = json.loads(line.decode(), parse_int=whole_number if many else None)
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
    for name, least in (("ci_width", SMALLEST_SHARE), ("noise_threshold", 0.0), ("alpha", 0.0)):
        if not least <= (share := getattr(record.job.protocol, name)) < 1:  # it would break derived numbers
            raise ValueError(f"{name} {share} is not a share between 0 and 1")
    return record


def whole_number(digits: str) -> int:
    """Rejects integers with more digits than any count or size can have."""
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)


def _append(path: Path, data: bytes) -> None:
    """Appends and syncs all of ``data``; on ``OSError`` the file is as before."""
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
    """Writes all data. A single write may be partial, for example on a full disk."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) or 0 :]


def _ends_in_newline(path: Path) -> bool:
    """True also for an empty or missing file."""
    if not path.exists() or path.stat().st_size == 0:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def stored(path: Path) -> Path:
    """The file, or the packed one if only that exists."""
    packed = path.with_name(path.name + ENDING)
    return packed if packed.is_file() and not path.exists() else path


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Its content, to read. ``OSError`` also for a packed file that is damaged."""
    path = stored(path)
    try:
        with gzip.open(path) if path.suffix == ENDING else path.open("rb") as file:
            yield cast("BinaryIO", file)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise OSError(0, "it is no gzip file, or was cut short", str(path)) from None
