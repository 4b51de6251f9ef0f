"""Selects the models of a very large run that figures and the console show: the largest changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from runner.analysis.comparison import Comparison
from runner.reports.parts.sections import Section

Model = tuple[Comparison, ...]
"""The comparisons of one model."""


def top_models(section: Section, *, most: int, otherwise: int) -> tuple[Section, str]:
    """The section, and "". With more than ``most`` models: ``otherwise`` of them, and a sentence on this."""
    models = [tuple(group) for _, group in groupby(section.comparisons, key=lambda c: c.record.job.key)]
    if len(models) <= most:
        return section, ""
    by_distance = sorted(range(len(models)), key=lambda place: -_distance(models[place]))
    places = sorted(by_distance[:otherwise])
    comparisons = tuple(comparison for place in places for comparison in models[place])
    shown = f"{otherwise:,} of {len(models):,} models, with the speedups furthest from 1"
    return replace(
        section, comparisons=comparisons
    ), f"{shown}; report.html and the CSV files have all models"


def _distance(model: Sequence[Comparison]) -> float:
    """The largest absolute log speedup of the model; 0 without a valid speedup."""
    valid = (c.speedup for c in model if c.record.status.passed)
    return max((abs(math.log(speedup)) for speedup in valid if speedup), default=0.0)
