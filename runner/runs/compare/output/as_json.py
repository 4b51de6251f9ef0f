"""The comparison for programs, complete and without rounding. Infinity and NaN are texts, as in records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from harness.codec import to_json
from runner.analysis.estimate import Estimate
from runner.runs.compare.changes import Change, RunChanges
from runner.runs.compare.gates import GateResult
from runner.runs.compare.output.words import WORDS
from runner.runs.compare.run import Result, Run

SCHEMA_VERSION = 1
FACTOR = ("factor", "low", "high", "p_value", "low_90", "high_90")
RESULT = ("name", "conditions", "status")


def render_json(changes: RunChanges, results: Sequence[GateResult]) -> str:
    whole = {
        "schema_version": SCHEMA_VERSION,
        "first": _run(changes.first),
        "second": _run(changes.second),
        "drift": to_json(changes.drift),
        "process_noise": to_json(changes.noise),
        "groups": _plain(changes.groups),
        "changes": [_change(change) for change in changes.changes],
        "controls": [_change(change) for change in changes.controls],
        "not_compared": [
            {**_named(m.first, RESULT), "differences": to_json(m.differences)} for m in changes.mismatches
        ],
        "times_not_compared": [
            {"difference": difference, "results": count} for difference, count in changes.incomparable
        ],
        "only_first": [_named(result, RESULT) for result in changes.only_first],
        "only_second": [_named(result, RESULT) for result in changes.only_second],
        "gates": [
            {"gate": result.gate.words, "failed": bool(result.cases), "cases": result.cases}
            for result in results
        ],
    }
    return json.dumps(whole, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _run(run: Run) -> dict[str, Any]:
    return {"path": str(run.path), "facts": dict(run.facts), "notes": run.notes}


def _side(result: Result) -> dict[str, Any]:
    log = result.speedup
    return {
        **_named(result, ("status", "failure", "graph_breaks")),
        "log_speedup": None if log is None else {"value": log.log, "se": log.error, "df": log.df},
        **_named(result, ("eager_s", "compiled_s")),
        "compilation_latency_s": result.compile_s,
        "memory_ratio": result.memory_ratio,
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        **_named(change.first, ("name", "conditions")),
        "verdict": WORDS[change.verdict] if change.verdict else None,
        "q_value": change.q_value,
        "speedup_factor": _plain(change.speedup),
        "eager_time_factor": _plain(change.eager),
        "compiled_time_factor": _plain(change.compiled),
        "compiled_time_q": change.compiled_q,
        **_named(change, ("compile_factor", "memory_factor", "shared_rounds")),
        "first": _side(change.first),
        "second": _side(change.second),
    }


def _named(value: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: to_json(getattr(value, name)) for name in names}


def _plain(value: Any) -> Any:
    """An estimate as its factor with its intervals; the fields of anything else."""
    if isinstance(value, Estimate):
        return _named(value, FACTOR)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return to_json(value)
