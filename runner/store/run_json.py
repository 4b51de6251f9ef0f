"""``run.json``: the command of a run, its plan, and what else is known of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.codec import from_json
from harness.schema import Job

RUN = "run.json"
NO_PLAN = "it is no plan, or was cut short"


def read_run_json(folder: Path) -> dict[str, Any]:
    """The content. ``ValueError`` says in plain words why there is none; ``OSError``: it cannot be read."""
    try:
        run = json.loads((folder / RUN).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(NO_PLAN) from None
    if not isinstance(run, dict) or not isinstance(run.get("jobs"), list):
        raise ValueError(NO_PLAN)  # noqa: TRY004 - what is promised
    return run


def jobs_in(run: Mapping[str, Any], name: str = "jobs") -> tuple[Job, ...]:
    """The jobs of this run; ``plan``: of the whole plan, of which this run may be a part."""
    return from_json(tuple[Job, ...], run[name])
