"""summary.json: what was derived of a run, for programs. The samples stay in records.jsonl.

One object: ``schema_version`` (of this file), ``record_schema_versions``, ``environment``,
``comparisons`` (one a record, in plan order), ``groups`` (averages), ``warnings``, ``caveats``; of a
run in several environments also ``environments`` and ``environment_averages``.
Units are in the names; a number that does not exist is null; an endless one is "inf".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from harness.codec import to_json
from runner.comparison import Comparison, Summary
from runner.labels import ran_batch

FORMATS = ("json",)
FILE = "summary.json"
# History of this file's format:
#   1  2026-11  first version
SCHEMA_VERSION = 1


def render(summary: Summary) -> Mapping[str, bytes]:
    content = {
        "schema_version": SCHEMA_VERSION,
        "record_schema_versions": sorted({c.record.schema_version for c in summary.comparisons}),
        "environment": summary.environment,
        "groups": to_json(summary.groups),
        "warnings": to_json(summary.warnings),
        "caveats": summary.caveats,
        **_environments(summary),
        "comparisons": [],
    }
    head, tail = json.dumps(to_json(content), indent=1, allow_nan=False).rsplit("[]", 1)
    # a comparison a line: json indents at a tenth of its speed, and a large run is large
    lines = (json.dumps(to_json(_comparison(c)), allow_nan=False).encode() for c in summary.comparisons)
    body = b",\n  ".join(lines)
    return {FILE: b"%b[\n  %b\n ]%b\n" % (head.encode(), body, tail.encode())}


def _environments(summary: Summary) -> dict[str, Any]:
    """Only of a run in several environments: each candidate against eager of the reference environment."""
    if not summary.across:
        return {}
    rows = [
        {
            "job": one.record.job.key,
            "candidate": one.record.candidate,
            "torch": one.record.environment.get("torch"),
            "parity": one.record.env_parity,
            **{f.name: getattr(one, f.name) for f in fields(one) if f.name != "record"},
        }
        for one in summary.across
    ]
    return {"environments": rows, "environment_averages": summary.across_averages}


def _comparison(comparison: Comparison) -> dict[str, Any]:
    """Who and how it ended, every derived number under its own name, then parity, metrics and failure."""
    record = comparison.record
    job, case = record.job, record.job.case
    derived = {f.name: getattr(comparison, f.name) for f in fields(comparison) if f.name != "record"}
    return {
        "job": job.key,
        "suite": case.suite,
        "model": case.name,
        "mode": case.mode,
        "device": job.device,
        "dtype": job.dtype,
        "candidate": record.candidate,
        "scale": case.scale,
        "changes": case.changes,
        "batch_size": ran_batch(record),
        "published_batch_size": case.published_batch_size,
        "status": record.status,
        "passed": record.status.passed,
        **derived,
        "parity": record.parity,
        "metrics": record.metrics,
        "failure": record.failure,
        "notes": record.notes,
        "reproduce": record.reproduce,
        "started": record.started,
        "ended": record.ended,
    }
