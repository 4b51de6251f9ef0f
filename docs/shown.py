"""The run that README quotes, as its console printed it."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from runner.analysis.derive import summarize
from runner.analysis.results import Summary
from runner.reports.console import print_answer, print_report
from runner.store.record_file import read_records

RUN = Path(__file__).resolve().parents[1] / "results" / "main-job-auto-cpu"
QUOTED = "inductor"
WIDTH = 100


def quoted() -> str:
    """Of the run's table its head and the models with the largest and smallest speedup; its last lines."""
    summary = summarize(read_records(RUN / "records.jsonl").records)
    speedups = {c.record.job.case.name: c.speedup for c in summary.comparisons if c.compiler == QUOTED}
    known = {name: speedup for name, speedup in speedups.items() if speedup is not None}
    chosen = max(known, key=known.__getitem__), min(known, key=known.__getitem__)
    return "\n".join([*_lines(printed(summary), chosen, len(speedups)), ""])


def printed(summary: Summary) -> list[str]:
    """The lines that the run's console shows at its end."""
    file = io.StringIO()
    console = Console(file=file, width=WIDTH)
    print_report(summary, console)
    print_answer(summary, console)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def _lines(lines: list[str], chosen: tuple[str, ...], models: int) -> Iterator[str]:
    head = next(number for number, line in enumerate(lines) if line.startswith("model "))
    yield from lines[head - 2 : head + 1]
    name = ""
    for line in lines[head + 2 : lines.index("", head)]:
        name = line.split()[0] if not line.startswith(" ") else name
        if name in chosen:
            yield line
    yield f"({models - len(chosen)} more models)"
    yield ""
    shown = False
    for line in lines[len(lines) - lines[::-1].index("", 1) :]:  # the answer: an entry for each compiler
        shown = shown if line.startswith(" ") else f", {QUOTED}: " in line
        if shown:
            yield line


def replace_run(run: Path) -> None:
    """Packs the records and the plan of this run in place of the committed ones."""
    for name in ("records.jsonl", "run.json"):
        with gzip.GzipFile(RUN / f"{name}.gz", "wb", compresslevel=9, mtime=0) as file:
            file.write((run / name).read_bytes())
