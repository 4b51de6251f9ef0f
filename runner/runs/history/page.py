"""``--index``: the history as a page, ``index.html``: a list of all runs, and the trends of their results.

The list comes from the folders and from the index beside them. A run is not read again if its entry has as
many results as its file has lines. A run whose folder is gone stays in the list. A run with damaged files is
in the list, with a sentence on the damage. The page opens from disk and has no scripts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from runner.analysis.digits import speedup_text
from runner.analysis.statistics import geometric_mean
from runner.errors import UsageError
from runner.labels import counted, plain, reason
from runner.reports.pages.templates import source, template
from runner.reports.parts.sections import compiler_name
from runner.runs.compare.load import load_records
from runner.runs.compare.run import Result
from runner.runs.history.enter import entered
from runner.runs.history.index import INDEX, IndexedRun, read_entries
from runner.runs.history.plot import chart
from runner.runs.history.trends import SHOWN_CHANGES, conditions_of, latest_changes, speedups_of, trends
from runner.store.invocation import program
from runner.store.record_file import CUT_SHORT
from runner.store.run_folder import RECORDS, RUN, write_asked

PAGE = "index.html"
REPORT = "report.html"
SHOWN_MEANS = 6  # of each run; the rest is folded


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the list. ``state``: "complete", or one sentence on what is wrong."""

    run: IndexedRun
    link: str | None  # to its report, relative to the page; None without a report
    state: str
    damaged: bool = False


def write_page(folder: Path) -> str:
    """Writes ``folder/index.html``; returns a sentence on it. ``UsageError`` for a folder without runs."""
    if not folder.is_dir():
        raise UsageError(f"--index: there is no folder {folder}; give the folder that holds your runs")
    if (folder / RECORDS).is_file():
        raise UsageError(f"--index: {folder} is a run itself; give the folder that holds it")
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise UsageError(f"--index: {folder} cannot be read ({error.strerror})") from None
    known = _known(folder)
    rows = [read_run(path, known.get(path.name)) for path in inside if _is_run(path)]
    there = {path.name for path in inside}
    rows += [Row(run=run, link=None, state="folder gone") for run in known.values() if run.name not in there]
    if not rows:
        raise UsageError(f"--index: there is no run in {folder}; give the folder that holds your runs")
    page = folder / PAGE
    write_asked("--index", page, render(folder.resolve().name or str(folder), rows))
    damaged = sum(row.damaged for row in rows)
    return f"{counted(len(rows), 'run')}{f', {damaged} damaged' if damaged else ''} -> {page}"


def _known(folder: Path) -> Mapping[str, IndexedRun]:
    """The entries of the index; empty if it cannot be read, because the folders have the same data."""
    try:
        return {run.name: run for run in read_entries(folder / INDEX)}
    except UsageError:
        return {}


def _is_run(path: Path) -> bool:
    try:
        return (path / RECORDS).exists() or (path / RUN).exists()
    except OSError:  # a folder without read permission; the list shows this
        return True


def read_run(path: Path, known: IndexedRun | None = None) -> Row:
    """The row of one run. Never raises: ``state`` names the files that cannot be read."""
    wrong: list[str] = []
    planned, found = 0, entered(path)
    try:
        planned = _planned(path)
    except (OSError, ValueError) as error:
        wrong.append(_why(error))
    try:
        lines = sum(_counts(line) for line in (path / RECORDS).read_bytes().split(b"\n"))
        if known is not None and len(known.results) == lines:
            found = known
        else:
            run = load_records(path / RECORDS)
            found = entered(path, run)
            if run.damaged_lines:
                wrong.append(f"{counted(run.damaged_lines, 'line')} of {RECORDS} cannot be read")
    except (OSError, ValueError, RecursionError) as error:
        wrong.append(_why(error))
    done = len(found.results)
    state = "complete" if done >= planned else f"unfinished: {done} of {planned} records"
    return Row(
        run=found,
        link=f"./{quote(os.fsencode(path.name))}/{REPORT}" if _is_file(path / REPORT) else None,
        state=f"damaged: {'; '.join(dict.fromkeys(wrong))}" if wrong else state,
        damaged=bool(wrong),
    )


def _planned(path: Path) -> int:
    """The number of records that ``run.json`` plans. Raises ``ValueError`` or ``OSError``."""
    text = (path / RUN).read_bytes()
    try:
        return sum(len(list(job["candidates"])) for job in dict(json.loads(text))["jobs"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{RUN} is no plan, or was cut short") from None


def _counts(line: bytes) -> bool:
    return bool(line.strip()) and not line.endswith(CUT_SHORT)


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{Path(error.filename).name} is missing"
    if isinstance(error, OSError):
        return f"{Path(str(error.filename or '')).name} cannot be read ({error.strerror})"
    return reason(error)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


# -- the page --------------------------------------------------------------------


def render(title: str, rows: Sequence[Row]) -> bytes:
    """The page, for the runs in any order. The same runs give the same bytes."""
    from markupsafe import Markup

    ordered = sorted(rows, key=lambda row: (row.run.created, row.run.name))
    found = trends([row.run for row in ordered if row.run.results], controls=True)
    text = template(
        "index.html.j2"
    ).render(
        title=plain(title),
        style=Markup(source("report.css")),  # noqa: S704 - our own file
        rows=[_cells(row) for row in ordered[::-1]],
        changes=list(latest_changes(found))[:SHOWN_CHANGES],
        trends=[
            {"title": trend.title, "chart": Markup(chart(trend, number))}  # noqa: S704 - matplotlib escapes
            for number, trend in enumerate(found)
        ],
        damaged=sum(row.damaged for row in rows),
        program=" ".join(program()),
    )
    return text.encode()


def _cells(row: Row) -> dict[str, Any]:
    run = row.run
    means = list(_means(run.counted))
    return {
        "name": plain(run.name),
        "link": row.link,
        "tags": [plain(tag) for tag in run.tags],
        "merged_from": [plain(name) for name in run.merged_from],
        "when": run.created.strftime("%Y-%m-%d %H:%M"),
        "what": list(dict.fromkeys(plain(conditions_of(result)) for result in run.results)),
        "command": plain(run.command),
        "machine": plain(run.machine),
        "torch": plain(run.facts.get("torch", "")),
        "state": plain(row.state),
        "damaged": row.damaged,
        "passed": run.passed_text,
        "means": means[:SHOWN_MEANS],
        "more": means[SHOWN_MEANS:],
    }


def _means(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """(compiler, geometric mean with the number of models), for each section if there are several."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.compiler, conditions_of(result)), []).append(result)
    several = len({where for _, where in groups}) > 1
    for (compiler, where), members in groups.items():
        speedups = speedups_of(members)
        mean = speedup_text(*geometric_mean(speedups)) if speedups else "none"
        name = f"{compiler_name(compiler)} ({where})" if several else compiler_name(compiler)
        yield plain(name), f"{mean}, {len(speedups)}/{len(members)}"
