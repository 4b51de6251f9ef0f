"""The comparison for programs, complete and without rounding. Infinity and NaN are texts, as in records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from harness.codec import to_json
from runner.analysis.estimate import Estimate
from runner.runs.compare.changes import Change, GroupChange, RunChanges
from runner.runs.compare.gates import Outcome
from runner.runs.compare.output.words import WORDS
from runner.runs.compare.run import Result, Run

SCHEMA_VERSION = 1


def render_json(changes: RunChanges, outcomes: Sequence[Outcome]) -> str:
    whole = {
        "schema_version": SCHEMA_VERSION,
        "first": _run(changes.first),
        "second": _run(changes.second),
        "drift": _plain(changes.drift),
        "process_noise": _plain(changes.noise),
        "groups": [_group(group) for group in changes.groups],
        "changes": [_change(change) for change in changes.changes],
        "controls": [_change(change) for change in changes.controls],
        "not_compared": [
            {**_result(m.first), "differences": _plain(m.differences)} for m in changes.mismatches
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
    return {
        "status": result.status,
        "failure": result.failure or None,
        "graph_breaks": result.graph_breaks,
        "log_speedup": _log(result.speedup),
        "eager_s": result.eager_s,
        "compiled_s": result.compiled_s,
        "compilation_latency_s": result.compile_s,
        "memory_ratio": result.memory_ratio,
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "name": change.first.name,
        "conditions": {**change.second.conditions, **change.first.conditions},
        "verdict": WORDS[change.verdict] if change.verdict else None,
        "q_value": change.q_value,
        "speedup_factor": _factor(change.speedup),
        "eager_time_factor": _factor(change.eager),
        "compiled_time_factor": _factor(change.compiled),
        "compiled_time_q": change.compiled_q,
        "compile_factor": change.compile_factor,
        "memory_factor": change.memory_factor,
        "shared_rounds": change.shared_rounds,
        "first": _side(change.first),
        "second": _side(change.second),
    }


def _group(group: GroupChange) -> dict[str, Any]:
    plain = {field.name: getattr(group, field.name) for field in fields(group)}
    return {name: _factor(value) if isinstance(value, Estimate) else value for name, value in plain.items()}


def _log(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else {"value": estimate.log, "se": estimate.error, "df": estimate.df}


FACTOR = ("factor", "low", "high", "p_value", "low_90", "high_90")


def _factor(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else {name: getattr(estimate, name) for name in FACTOR}


def _plain(value: object) -> Any:
    return to_json(value) if value is not None else None
