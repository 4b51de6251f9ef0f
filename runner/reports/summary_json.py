"""summary.json: the derived values of a run, for programs. The samples are in records.jsonl.

One object: ``schema_version`` (of this file), ``record_schema_versions``, ``environment``, then the rows of
each view by its name, one on each line: ``comparisons`` has one for each record, in plan order, with the
columns of docs/FORMAT.md. Names contain the units. A missing value has no name; infinity is "inf".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from harness.codec import to_json
from runner.analysis.results import Summary
from runner.reports.parts.view import JSON, Lists, View
from runner.reports.views import VIEWS

S = TypeVar("S")
FORMATS = ("json",)
FILE = "summary.json"
# History of this file's format:
#   1  2026-11  first version
#   2  2026-11  a comparison is one flat row; a missing value has no name
SCHEMA_VERSION = 2


def render(summary: Summary) -> Mapping[str, bytes]:
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "record_schema_versions": sorted({c.record.schema_version for c in summary.comparisons}),
        "environment": summary.environment,
    }
    return {FILE: written(content, VIEWS, summary).encode()}


def written(content: dict[str, Any], views: Sequence[View[S, Any] | Lists[S]], subject: S) -> str:
    """The content, then the rows of each view by its name."""
    for view in views:
        if JSON in view.outlets and view.data is not None:
            content[view.name] = view.data(subject)
    lines = (f" {json.dumps(name)}: {_lines(value)}" for name, value in content.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _lines(value: Any) -> str:
    """A row of a list on each line: json with indents takes ten times as long."""
    if not isinstance(value, list) or not value:
        return json.dumps(to_json(value), allow_nan=False)
    rows = ",\n  ".join(json.dumps(to_json(row), allow_nan=False) for row in value)
    return f"[\n  {rows}\n ]"
