"""A claim of a published study beside the result of a run, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studies.markdown import table

HOLDS, FAILS, OPEN = "yes", "NOT in this run", "cannot tell"
NOT_SHOWN = "not shown"
"""The run was too short for the claim: neither shown nor refuted. The result says what it would take."""
NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """``title``: what the claim is about, if a report has the same claim several times."""

    title: str = ""
    expected: str
    found: str
    holds: str


def expectation_table(found: Sequence[Expectation], *, first: str = "", judged: bool = True) -> list[str]:
    """The expectations as a table. ``first``: the head of the column of titles; "" if there is none."""
    lines = [
        [*([one.title] if first else []), one.expected, one.found, one.holds if judged else NOT_JUDGED]
        for one in found
    ]
    return table([*([first] if first else []), "expected", "found", "holds"], lines)
