"""``--format=jsonl``: a JSON object on a line of standard output for each result, as soon as it is known.

A row has the names of docs/FORMAT.md, ``run`` (the folder) and ``final``. When the run ends, each result has
a last line with ``final: true``. The lines before are of one result alone, so they have no q.
"""

from __future__ import annotations

import json
from pathlib import Path

from harness.codec import to_json
from runner.analysis.results import Summary
from runner.reports.views import RESULTS


def print_rows(summary: Summary, run: Path, *, final: bool) -> None:
    for row in RESULTS.data(summary):
        known = {name: value for name, value in row.items() if final or name != "q_value"}
        print(json.dumps(to_json({"run": str(run), "final": final, **known}), allow_nan=False), flush=True)
