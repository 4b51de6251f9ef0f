"""Which models of a very large run a picture or the console shows: those that say most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from runner.comparison import Comparison
from runner.reports._sections import Section

Model = tuple[Comparison, ...]
"""Its comparisons."""


def telling(section: Section, *, most: int, otherwise: int) -> tuple[Section, str]:
    """The section, and ""; of more than ``most`` models only ``otherwise``, in plan order, and a sentence."""
    models = [tuple(group) for _, group in groupby(section.comparisons, key=lambda c: c.record.job.key)]
    if len(models) <= most:
        return section, ""
    by_distance = sorted(range(len(models)), key=lambda place: -_distance(models[place]))
    kept = sorted(by_distance[:otherwise])
    comparisons = tuple(comparison for place in kept for comparison in models[place])
    shown = f"{otherwise:,} of {len(models):,} models, those furthest from 1"
    return replace(section, comparisons=comparisons), f"{shown}; report.html and the CSV files have all"


def _distance(model: Sequence[Comparison]) -> float:
    """How far its compilers moved it, either way; 0 without a valid number."""
    valid = (c.speedup for c in model if c.record.status.passed)
    return max((abs(math.log(speedup)) for speedup in valid if speedup), default=0.0)
