"""otava.csv: the speedups of a series of runs, for change points by Apache Otava, and its otava.yaml.

A row for each run. Otava reads a number from every cell: the columns are the results that passed in each run.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import UsageError
from runner.names import counted

if TYPE_CHECKING:
    from runner.runs.history import Listed

FILE, ABOUT = "otava.csv", ("run", "tags", "torch", "machine")


def series(runs: Sequence[Listed], folder: Path) -> tuple[dict[str, bytes], str]:
    """The files by name, and a sentence on them. ``UsageError`` if no result passed in every run."""
    timed = [run for run in runs if run.speedups]
    every = list(dict.fromkeys(name for run in timed for name in run.speedups))
    names = [name for name in every if all(name in run.speedups for run in timed)]
    if not names:
        choose = "choose runs by --tag, and results by --suites and --compilers"
        raise UsageError(f"--format=otava: no result passed in every run of {folder}; {choose}")
    file, metrics = io.StringIO(), [" ".join(name) for name in names]
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(("time", *ABOUT, *metrics))
    for run in timed:
        about = (run.created.isoformat(), run.name, " ".join(run.tags), run.torch, run.machine)
        rows.writerow((*about, *(run.speedups[name] for name in names)))
    asked = {"type": "csv", "file": str(folder.resolve() / FILE), "time_column": "time", "attributes": ABOUT}
    settings = json.dumps({"tests": {"torchduet": {**asked, "metrics": metrics}}}, indent=1)  # JSON is YAML
    text = (
        f"{counted(len(names), 'result')} of {counted(len(timed), 'run')}, without {len(every) - len(names)} "
    )
    return {FILE: file.getvalue().encode(), "otava.yaml": settings.encode()}, text + "that some run lacks"
