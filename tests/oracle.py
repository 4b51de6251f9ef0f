"""What reports show of the committed records, as plain values, to which later code is held.

``tests/data/oracle/FOLDER.json.xz`` has it for a folder of ``results/``: file -> table -> row -> field ->
value. Tables, rows and fields are called as in summary.json and in the data frames, so the code that makes
them may change. A missing value has no field. Floats have ten digits; a long text is its beginning and a
checksum. ``UPDATE_ORACLE=1`` writes the files anew: see ``tests/unit/test_oracle.py``.
"""

from __future__ import annotations

import json
import lzma
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.codec import from_json
from harness.schema import Record
from runner.analysis.derive import summarize
from runner.reports.summary_json import FILE, render
from runner.store.record_file import opened
from runner.store.run_folder import read_run

RESULTS = Path(__file__).parents[1] / "results"
KEPT = Path(__file__).parent / "data" / "oracle"
LONGEST = 80  # characters of a text
SAME = 1e-9  # relative
RAW = {"job", "name", "suite", "mode", "dtype", "scale", "reproduce", "started"}  # in the record as they are
NAMES_ROW = (
    *("job", "axis", "jobs.0", "candidate", "start", "first", "first_start", "second", "second_start"),
    *("environment", "versions", "compiler", "suite", "mode", "device", "dtype", "title"),
)

Row = dict[str, Any]
Tables = dict[str, dict[str, Row]]


def folders() -> list[str]:
    """The folders of results with records."""
    return sorted(folder.name for folder in RESULTS.iterdir() if record_files(folder))


def record_files(folder: Path) -> list[Path]:
    """The files of records of jobs. Others are records of studies and tables of scripts."""
    return [path for path in sorted(folder.rglob("*.jsonl*")) if _is_of_records(path)]


def _is_of_records(path: Path) -> bool:
    with opened(path) as file:
        return file.read(9) == b'{"job": {'


def numbers(folder: str) -> dict[str, Tables]:
    """What reports show of each file of records in the folder."""
    named = {
        path.relative_to(RESULTS).as_posix().partition(".jsonl")[0].removesuffix("/records"): path
        for path in record_files(RESULTS / folder)
    }
    return {name: _all_tables(path) for name, path in named.items()}


def _all_tables(path: Path) -> Tables:
    """Of the run; in a file of several runs of the same jobs, as an A/A control, of each: ``2: groups``."""
    content = read_run(path)
    if not any("repeats" in sentence for sentence in content.damage):
        return tables(content.records)
    runs: dict[int, list[Record]] = {}
    seen = Counter[tuple[str, str]]()
    with opened(path) as file:
        lines = file.readlines()
    for line in lines:
        record = from_json(Record, json.loads(line))
        seen[record.job.key, record.candidate] += 1
        runs.setdefault(seen[record.job.key, record.candidate], []).append(record)
    each = {number: tables(records) for number, records in runs.items()}
    return {f"{number}: {name}": rows for number, tables in each.items() for name, rows in tables.items()}


def tables(records: Sequence[Record]) -> Tables:
    summary = summarize(records)
    content = {name: part for name, part in json.loads(render(summary)[FILE]).items() if name != "caveats"}
    for warning in content["warnings"]:
        del warning["advice"]  # a sentence to people, as caveats are
    content["comparisons"] = [
        {"job": row["job"], "candidate": c.record.candidate}
        | {name: value for name, value in row.items() if name not in RAW}
        for c, row in zip(summary.comparisons, content["comparisons"], strict=True)
    ]
    return {
        name: _rows(value) for name, value in content.items() if value and isinstance(value, (list, dict))
    }


def _rows(value: Any) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for number, item in enumerate(value if isinstance(value, list) else [value]):
        fields = dict(_flat(item))
        key = " | ".join(str(fields.pop(name)) for name in NAMES_ROW if name in fields) or f"{number}"
        while key in rows:
            key += " again"
        rows[key] = fields
    return rows


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested tables and lists by the path of their names."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _flat(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, str) and len(value) > LONGEST:
        yield name, f"{value[:LONGEST]}... {zlib.crc32(value.encode(errors='backslashreplace')):08x}"
    elif value is not None:
        yield name, float(f"{value:.10g}") if isinstance(value, float) else value


def kept(folder: str) -> dict[str, Tables]:
    return json.loads(lzma.decompress((KEPT / f"{folder}.json.xz").read_bytes()))  # type: ignore[no-any-return]


def keep(folder: str, values: Mapping[str, Tables]) -> None:
    (KEPT / f"{folder}.json.xz").write_bytes(lzma.compress(json.dumps(values).encode(), preset=9))


def differences(was: Any, now: Any, *where: str) -> Iterator[str]:
    """What differs, in the order of the kept values: where (file, table, row, field), was, is."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in {**was, **now}:
            yield from differences(was.get(name), now.get(name), *where, name)
    elif not _same(was, now):
        yield f"{', '.join(where)}: was {_shown(was)}, is {_shown(now)}"


def _same(was: Any, now: Any) -> bool:
    """An empty text is a missing value."""
    if was == "":
        return now in (None, "")
    if isinstance(was, float) and isinstance(now, int | float):
        return math.isclose(was, now, rel_tol=SAME, abs_tol=1e-15)
    return type(was) is type(now) and bool(was == now)


def _shown(value: Any) -> str:
    return "missing" if value is None else "here" if isinstance(value, dict) else repr(value)
