"""The history as a page, ``index.html``: a list of all runs, and the trends of their results.

The page opens from disk and has no scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.labels import plain
from runner.reports.pages.templates import template
from runner.runs.history.chart import chart
from runner.runs.history.runs import Run, status_changes, trends
from runner.store.invocation import program
from runner.store.run_folder import write_asked

PAGE = "index.html"
SHOWN_GROUPS = 6  # of each run; the rest is folded
SHOWN_CHANGES = 20


def write_page(folder: Path, runs: Sequence[Run]) -> Path:
    """Writes ``folder/index.html`` from the runs, oldest first."""
    page = folder / PAGE
    write_asked("--history", page, render(folder.resolve().name or str(folder), runs))
    return page


def render(title: str, runs: Sequence[Run]) -> bytes:
    """The page. The same runs give the same bytes."""
    text = template("index.html.j2").render(
        title=plain(title),
        runs=runs[::-1],
        shown_groups=SHOWN_GROUPS,
        changes=list(status_changes(runs))[:SHOWN_CHANGES],
        trends=[
            {"title": title, "chart": chart(trend, number)}
            for number, (title, trend) in enumerate(trends(runs).items())
        ],
        damaged=sum(run.damaged for run in runs),
        program=" ".join(program()),
    )
    return text.encode()
