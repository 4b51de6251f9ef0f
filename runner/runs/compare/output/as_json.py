"""The comparison for programs, complete and without rounding. Infinity and NaN are texts, as in records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from harness.codec import to_json
from runner.analysis.estimate import Estimate
from runner.runs.compare.changes import Change, RunChanges
from runner.runs.compare.gates import Outcome
from runner.runs.compare.output.words import WORDS
from runner.runs.compare.run import Result, Run

SCHEMA_VERSION = 1
FACTOR = ("factor", "low", "high", "p_value", "low_90", "high_90")


def render_json(changes: RunChanges, outcomes: Sequence[Outcome]) -> str:
    whole = {
        "schema_version": SCHEMA_VERSION,
        "first": _run(changes.first),
        "second": _run(changes.second),
        "drift": _plain(changes.drift),
        "process_noise": _plain(changes.noise),
        "groups": [_plain(group) for group in changes.groups],
        "changes": [_change(change) for change in changes.changes],
        "controls": [_change(change) for change in changes.controls],
        "not_compared": [
            {**_result(m.first), "differences": to_json(m.differences)} for m in changes.mismatches
        ],
        "times_not_compared": [
            {"difference": list(difference), "results": count} for difference, count in changes.incomparable
        ],
        "only_first": [_result(result) for result in changes.only_first],
        "only_second": [_result(result) for result in changes.only_second],
        "gates": [
            {"gate": outcome.gate.words, "failed": bool(outcome.cases), "cases": list(outcome.cases)}
            for outcome in outcomes
        ],
    }
    return json.dumps(whole, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _run(run: Run) -> dict[str, Any]:
    return {"path": str(run.path), "facts": dict(run.facts), "notes": list(run.notes)}


def _result(result: Result) -> dict[str, Any]:
    return {"name": result.name, "conditions": dict(result.conditions), "status": result.status}


def _side(result: Result) -> dict[str, Any]:
    log = result.speedup
    return {
        "status": result.status,
        "failure": result.failure or None,
        "graph_breaks": result.graph_breaks,
        "log_speedup": None if log is None else {"value": log.log, "se": log.error, "df": log.df},
        "eager_s": result.eager_s,
        "compiled_s": result.compiled_s,
        "compilation_latency_s": result.compile_s,
        "memory_ratio": result.memory_ratio,
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "name": change.first.name,
        "conditions": dict(change.first.conditions),
        "verdict": WORDS[change.verdict] if change.verdict else None,
        "q_value": change.q_value,
        "speedup_factor": _plain(change.speedup),
        "eager_time_factor": _plain(change.eager),
        "compiled_time_factor": _plain(change.compiled),
        "compiled_time_q": change.compiled_q,
        "compile_factor": change.compile_factor,
        "memory_factor": change.memory_factor,
        "shared_rounds": change.shared_rounds,
        "first": _side(change.first),
        "second": _side(change.second),
    }


def _plain(value: Any) -> Any:
    """An estimate as its factor with its intervals; the fields of anything else."""
    if isinstance(value, Estimate):
        return {name: to_json(getattr(value, name)) for name in FACTOR}
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return to_json(value)
