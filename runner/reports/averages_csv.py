"""averages.csv: the averages as numbers; geomean.csv and similar files have them as text (``1.23x``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from harness.metrics import declared
from runner.analysis.comparison import GroupSummary, Summary
from runner.analysis.estimate import Verdict
from runner.reports.parts.cells import csv_bytes
from runner.reports.parts.sections import sections

FORMATS = ("csv",)
FILE = "averages.csv"
WORDS = ("suite", "mode", "device", "dtype", "compiler")
NUMBERS = tuple(
    field.name for field in fields(GroupSummary) if field.name not in (*WORDS, "means", "verdicts")
)


def render(summary: Summary) -> Mapping[str, bytes]:
    averaged = declared().averages()
    means = [name for one in averaged if one.average for name in (f"{one.average.key}_n", f"mean_{one.name}")]
    rows = [
        (
            *(part.suite, part.mode, part.device, part.dtype, group.compiler),
            *(getattr(group, name) for name in NUMBERS),
            *(cell for one in averaged for cell in _mean(group, one.name)),
            *(group.verdicts.get(verdict.value, 0) for verdict in Verdict),
        )
        for part in sections(summary)
        for group in part.groups
    ]
    return {FILE: csv_bytes((*WORDS, *NUMBERS, *means, *(verdict.value for verdict in Verdict)), rows)}


def _mean(group: GroupSummary, metric: str) -> tuple[int, float | None]:
    """The number of models that have the metric, and its mean over these models."""
    mean = group.means.get(metric)
    return (0, None) if mean is None else (mean.n, mean.value)
