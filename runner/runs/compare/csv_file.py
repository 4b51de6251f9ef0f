"""Reads results from CSV files: PyTorch's runner's, torchduet's and expected files.

A file's name, such as ``inductor_timm_models_float32_training_cuda_performance.csv``, gives conditions that
its rows lack. A condition that neither gives is unknown, and matches every value. PyTorch's performance
files have no status (a failure is a speedup of 0) and no interval; its accuracy files have no times.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.devices import type_of
from harness.schema import DTYPES, Mode, Status
from runner.analysis.comparison import CONTROL
from runner.analysis.verdicts.decision import T_95
from runner.errors import UsageError
from runner.labels import file_part, plain
from runner.runs.compare.run import Result, Run
from runner.runs.compare.statistics import ASSUMED_WITHIN_SD, Uncertain, se_of_interval

Row = Mapping[str, str]

OUTCOMES = ("speedup", "speedup_paired", "status", "accuracy")
PRECISIONS = {file_part(dtype): dtype for dtype in DTYPES}
NAME = re.compile(
    rf"(?P<head>.+?)_(?P<precision>{'|'.join(sorted(map(re.escape, PRECISIONS), key=len, reverse=True))})"
    rf"_(?P<mode>{'|'.join(mode.value for mode in Mode)})_(?P<device>[^_]+)_(performance|accuracy)"
)
# name of a condition: its column
COLUMNS = {
    "suite": "suite",
    "mode": "mode",
    "precision": "dtype",
    "compiler": "candidate",
    "scale": "scale",
    "batch size": "batch_size",
    "changes": "changes",
    "options": "options",
    "eval mode": "eval_mode",
}
MAY_BE_EMPTY = ("changes", "options", "eval mode")  # empty means: none


def is_result_file(path: Path) -> bool:
    """Whether the first line has a column of names and a column of outcomes."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
    except (OSError, ValueError, csv.Error):
        return False
    return "name" in header and any(column in header for column in OUTCOMES)


def read_csv_files(flag: str, paths: Sequence[Path]) -> Run:
    """All files as one run. Raises ``UsageError`` for another kind of file, and ``OSError``."""
    found: dict[tuple[str, ...], Result] = {}
    notes: list[str] = []
    headers: set[str] = set()
    for path in sorted(paths, key=lambda path: path.stem.endswith("_accuracy")):
        header, rows = _rows(flag, path)
        headers.update(header)
        named = _named_by(path.stem)
        repeated = []
        seen = set()
        for row in rows:
            result = _result(row, named)
            key = (result.name, *(f"{n}={v}" for n, v in result.conditions.items() if n != "batch size"))
            if key in seen:
                repeated.append(result.name)
            else:
                # PyTorch's runner checks parity and measures times at different batch sizes
                found[key] = _joined(found[key], result) if key in found else result
            seen.add(key)
        if repeated:
            names = ", ".join(map(plain, dict.fromkeys(repeated)))
            notes.append(f"{plain(str(path))} has more than one row for {names}; the first counts")
    results = tuple(found.values())
    if any(result.speedup is not None and math.isinf(result.speedup.df) for result in results):
        where = paths[0] if len(paths) == 1 else paths[0].parent
        notes.append(
            f"{plain(str(where))} gives speedups without intervals: a standard deviation of "
            f"{ASSUMED_WITHIN_SD:.0%} is assumed for each"
        )
    expected = "dev" not in headers and "speedup" not in headers
    return Run(path=paths[0], results=results, notes=tuple(notes), expected=expected)


def _rows(flag: str, path: Path) -> tuple[Sequence[str], Sequence[Row]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restval="")
            header = list(reader.fieldnames or ())
            rows = [row for row in reader if row.get("name")]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{flag}: {path} cannot be read as CSV ({error})") from None
    if "name" not in header or not any(column in header for column in OUTCOMES):
        raise UsageError(
            f"{flag}: {path} is not a file of results: it needs a column 'name' and one of "
            f"{', '.join(OUTCOMES)}"
        )
    return header, rows


def _named_by(stem: str) -> dict[str, str]:
    """The conditions in the file's name; empty for names of another form."""
    found = NAME.fullmatch(stem)
    if found is None:
        return {}
    compiler, suite = _compiler_and_suite(found["head"])
    return {
        "suite": suite,
        "mode": found["mode"],
        "device": found["device"].split("-")[0],
        "precision": PRECISIONS[found["precision"]],
        "compiler": compiler,
    }


def _compiler_and_suite(head: str) -> tuple[str, str]:
    """Splits compiler and suite. Both may contain underscores, so known names are tried first."""
    from harness.backends import backend_names
    from harness.loading.suite_files import suite_names

    for suite in suite_names():
        if head.endswith(f"_{suite}"):
            return head.removesuffix(f"_{suite}"), suite
    for compiler in sorted(backend_names(), key=len, reverse=True):
        if head.startswith(f"{compiler}_"):
            return compiler, head.removeprefix(f"{compiler}_")
    compiler, _, suite = head.partition("_")
    return compiler, suite


def _result(row: Row, named: Mapping[str, str]) -> Result:
    speedup, eager_s, compiled_s = _times(row)
    status = row.get("status") or row.get("accuracy") or None
    if status is None and speedup is None:
        status = Status.FAIL_TO_RUN.value
    breaks, calls = _number(row, "graph_breaks"), _number(row, "calls_captured")
    conditions = {**named, **dict(_conditions(row))}
    result = Result(
        is_control=conditions.get("compiler") == CONTROL,
        name=plain(_unguarded(row["name"])),
        conditions=conditions,
        status=status,
        failure=plain(row.get("failure") or ""),
        graph_breaks=int(breaks) if breaks is not None and breaks.is_integer() else None,
        calls_captured=int(calls) if calls is not None and calls.is_integer() else None,
        processes=int(_number(row, "processes") or 1),
        eager_s=eager_s,
        compiled_s=compiled_s,
        compile_s=_number(row, "compilation_latency") or None,
        memory_ratio=_number(row, "compression_ratio") or None,
    )
    return replace(result, speedup=speedup) if result.passed else result


def _conditions(row: Row) -> Iterator[tuple[str, str]]:
    for name, column in COLUMNS.items():
        value = row.get(column)
        if value or (value == "" and name in MAY_BE_EMPTY):
            yield name, _unguarded(value)
    if device := row.get("device") or row.get("dev"):
        yield "device", type_of(device)


def _times(row: Row) -> tuple[Uncertain | None, float | None, float | None]:
    """ln(speedup) with its error, and the steps of eager and compiled in seconds."""
    ratio, compiled = _number(row, "speedup"), _number(row, "abs_latency")
    eager = _number(row, "baseline_latency_ms")
    if not eager and ratio and compiled:
        eager = ratio * compiled
    eager_s, compiled_s = (value / 1e3 if value else None for value in (eager, compiled))
    paired, low, high = (_number(row, name) for name in ("speedup_paired", "ci_low", "ci_high"))
    processes, assumed = _number(row, "processes") or 1.0, _number(row, "assumed_sd_between_processes")
    df = (_number(row, "n") or 0.0) - 1
    if processes > 1:  # files of before the moderated variance have no degrees of freedom
        df = _number(row, "df_between_processes") or processes - 1
    if paired and low and high and low <= high and df >= 1:
        if assumed:  # the variation between processes comes from both runs (process_noise)
            low, high = (paired * _less(bound / paired, T_95 * assumed) for bound in (low, high))
        return Uncertain(value=math.log(paired), se=se_of_interval(low, high, df), df=df), eager_s, compiled_s
    value = paired or ratio
    if not value:
        return None, eager_s, compiled_s
    return Uncertain(value=math.log(value), se=ASSUMED_WITHIN_SD, df=math.inf), eager_s, compiled_s


def _less(factor: float, known: float) -> float:
    """A bound as a factor of its estimate, without a part that was added in quadrature."""
    log = math.log(factor)
    return math.exp(math.copysign(math.sqrt(max(0.0, log**2 - known**2)), log))


def _number(row: Row, column: str) -> float | None:
    """The cell as a number >= 0; None for anything else."""
    try:
        value = float(row.get(column) or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _unguarded(text: str) -> str:
    """The name without the apostrophe that protects spreadsheets from formulas."""
    return text[1:] if re.match(r"'\s*[=+\-@\uff1d\uff0b\uff0d\uff20]", text) else text


def _joined(timed: Result, checked: Result) -> Result:
    """Joins a row of a performance file with its row of the accuracy file."""
    status = timed.status if timed.status is not None else checked.status
    breaks = timed.graph_breaks if timed.graph_breaks is not None else checked.graph_breaks
    joined = replace(timed, status=status, graph_breaks=breaks)
    return joined if joined.passed else replace(joined, speedup=None)
