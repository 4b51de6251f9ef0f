"""``result.why()``: the explanation of one compiler's speed."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.backends.settings.candidates import compiler_of
from harness.schema import Job, Record
from runner.errors import UsageError
from runner.runs.why.asking import asked_why
from runner.runs.why.explain import Why
from runner.runs.why.words import as_json, show

WIDTH = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What ``--why`` prints. ``why`` has its parts."""

    why: Why

    def json(self) -> dict[str, Any]:
        """The content of ``why.json``."""
        return as_json([self.why])

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        show(self.why, Console(file=text, width=WIDTH, color_system=None, force_jupyter=False))
        return text.getvalue()

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def explained(record: Record, again: Callable[[Job], Sequence[Record]] | None) -> Explanation:
    """The explanation of this record's candidate; ``again`` measures the same model with another job."""
    name = record.candidate
    if again is None:
        raise UsageError("why: this result cannot be measured again; use the result of compare()")
    if compiler_of(name) == "eager" or name in record.job.own_compilers:
        raise UsageError(f"why: {name} has no settings to test; name a backend of torch.compile")
    job = replace(record.job, candidates=(name,))
    answer = asked_why(job, lambda asked, _: again(asked), lambda _: None)
    if answer.why is None:
        raise UsageError(f"why: {answer.problem}")
    return Explanation(why=answer.why)
