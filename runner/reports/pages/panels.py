"""The panel that report.html opens for one case: every fact of its record as text, and the samples."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from enum import Enum
from functools import cache, lru_cache
from string import ascii_lowercase, digits
from types import MappingProxyType
from typing import Any

from harness.declared import COMPILATION, MEMORY, NOISE, OTHER, SIDES, WORK
from harness.metrics import declared
from harness.schema import Parity, Record, Samples, Scalar
from runner.analysis.columns import GENERATION, KEY, PARITY, RESULT, SIZE, STEADINESS, Column, columns
from runner.analysis.digits import share_text, with_unit
from runner.analysis.results import Result, Summary
from runner.names import notes_of, plain, where_text
from runner.reports.pages.rows import short
from runner.reports.parts.grid import plain_lines
from runner.store.figures import Figures

OF_PARITY = (
    *("multiplier", "lower_precision", "steps", "other_data", "random", "not_checked", "unjudged"),
    *("noise_tensors", "sensitive_tensors"),
)
OF_WORST = ("numel", "slope", "allowed_slope")
"""Fields that no column has."""
GROUPS = (RESULT, PARITY, COMPILATION, MEMORY, WORK, STEADINESS, NOISE, GENERATION, OTHER)
OF_ROOFLINE = MappingProxyType(
    {
        "flop_per_byte": "flop_per_byte",
        "eager": "baseline_tflop_per_s",
        "candidate": "candidate_tflop_per_s",
        "roof": "roof_tflop_per_s",
        "peak": "measured_peak_tflop_per_s",
        "bandwidth": "measured_bandwidth_gb_per_s",
    }
)
OF_TENSORS = ("call", "eager", "noisy", "candidate", "outcome")
DIGITS = 5  # of the largest sample, in counts; finer than the clock's noise
CHUNK = 250  # panels that are compressed together
UNIT_IN_NAME = re.compile(r"_((t?flop|bytes|gb|tokens)_per_s|per_s|bytes|gb|mhz|ms|s)$")
Facts = list[tuple[str, str]]
PLACES = digits + ascii_lowercase  # one character for each place in a round's order


def panel_chunks(summary: Summary) -> Iterator[list[dict[str, Any]]]:
    """The panels in chunks of ``CHUNK``: the page decompresses only the chunk of an opened panel."""
    for first in range(0, len(summary.comparisons), CHUNK):
        yield [_panel(c, summary.figures) for c in summary.comparisons[first : first + CHUNK]]


def _panel(comparison: Result, figures: Mapping[tuple[str, str], Sequence[Figures]]) -> dict[str, Any]:
    record = comparison.record
    timed = record.samples is not None and comparison.speedup is not None
    failure = asdict(record.failure) if record.failure else {}
    return {
        "groups": [group for group in _groups(comparison) if group[1]],
        "reproduce": plain(record.reproduce),
        "notes": [plain(note) for note in notes_of(record)],
        "failure": {name: plain_lines(str(value)) for name, value in failure.items() if value} or None,
        "roofline": _roofline(comparison),
        "phases": _phases(comparison),
        "samples": _samples(record.samples) if timed and record.samples else None,
        "parity": _parity(record, figures.get((record.job.key, record.candidate), ())),
    }


# -- facts -----------------------------------------------------------------------


def _groups(comparison: Result) -> Iterator[tuple[str, Facts]]:
    """The columns by group, then what no column has: of the parity, the metrics and the job."""
    record, job = comparison.record, comparison.record.job
    others = {name: value for name, value in record.metrics.items() if name not in columns()}
    more = {PARITY: _more_of(record.parity) if record.parity else [], OTHER: mapping(others)}
    for group in GROUPS:
        yield group.capitalize(), [*of_group(comparison, group), *more.get(group, ())]
    ran = [fact for part in (job.case, job.options, job.extras) for fact in settings(part)]
    beside = {"eager's precision": job.baseline_dtype, "measured together": job.candidates}
    yield "What ran", [*of_group(comparison, KEY, SIZE), *ran, *mapping(beside)]
    when = {"started": record.started, "ended": record.ended, "record format": record.schema_version}
    yield "How it was measured", [*mapping(when), *settings(job.protocol, every=True)]
    yield "Environment", mapping(record.environment)


def _more_of(parity: Parity) -> Facts:
    """With the numbers of the worst tensor, and the place of a localized failure."""
    worst = {f"worst_{name}": getattr(parity.worst, name, None) for name in OF_WORST}
    where = where_text(parity.where) if parity.where else ""
    return mapping({**{name: getattr(parity, name) or None for name in OF_PARITY}, **worst, "where": where})


# -- charts ----------------------------------------------------------------------


def _samples(samples: Samples) -> dict[str, Any]:
    largest = max((*samples.baseline_s, *samples.candidate_s))
    scale = float(f"1e{math.floor(math.log10(largest)) + 1 - DIGITS}")  # seconds for one count

    def counts(seconds: Sequence[float], unit: float = scale) -> list[int]:
        return [round(value / unit) for value in seconds]

    def order(places: Sequence[int]) -> str:
        return "".join(PLACES[place : place + 1] or "-" for place in places)

    shown: dict[str, Any] = {
        "unit_ms": scale * 1e3,
        "baseline": counts(samples.baseline_s),
        "candidate": counts(samples.candidate_s),
        "baseline_place": order(samples.baseline_position),
        "candidate_place": order(samples.candidate_position),
        "iterations": samples.iterations_per_sample,
    }
    faults = (samples.baseline_minor_faults, samples.candidate_minor_faults)
    if any(map(any, faults)):
        shown["faults"] = [counts(column, 1) for column in faults]
    prefill = (samples.baseline_prefill_s, samples.candidate_prefill_s)
    if any(prefill):
        shown["prefill"] = [counts(column) for column in prefill]
    return shown


def _parity(record: Record, tensors: Sequence[Figures]) -> dict[str, Any] | None:
    """The picture's columns; None without tensors."""
    if not tensors:
        return None
    reference = record.parity.reference if record.parity is not None else "fp64"
    shown = {name: [getattr(tensor, name) for tensor in tensors] for name in OF_TENSORS}
    return {"tensors": [plain(tensor.tensor) for tensor in tensors], "reference": reference, **shown}


def _roofline(comparison: Result) -> dict[str, Any] | None:
    """FLOP/byte of the step, TFLOP/s of both sides, and the two limits of the device; None if unknown."""
    shown = {key: short(comparison.number(name)) for key, name in OF_ROOFLINE.items()}
    if not comparison.n or shown["roof"] is None or shown["flop_per_byte"] is None:
        return None
    shares = (comparison.number(f"{side}share_of_roof") for side in SIDES)
    return {**shown, "shares": [None if share is None else share_text(share) for share in shares]}


def _phases(comparison: Result) -> list[tuple[str, float]] | None:
    """(phase, seconds) for the phases that torch reported; None for fewer than two phases.

    A phase includes the phases after it, except the phases of the same level.
    """
    times = [
        (metric.phase, float(f"{seconds:.4g}"))
        for metric in declared().metrics
        if metric.phase and (seconds := comparison.number(metric.name)) is not None and seconds > 0
    ]
    return times if len(times) > 1 else None


# -- facts as text: names as words, values with units ------------------------------------


def of_group(comparison: Result, *groups: str) -> Facts:
    """The columns of these groups that have a value."""
    known = ((column, column.value(comparison)) for column in _columns(groups))
    return [_fact(column, value, comparison) for column, value in known if value is not None]


def _fact(column: Column[Result], value: Any, comparison: Result) -> tuple[str, str]:
    if column.header and column.unit == "ratio":  # it has its interval, or stands in tables
        return column.header.replace("\n", " "), column.cell(comparison)
    return _named(column.name, value, column.unit, column.digits)


@cache
def _columns(groups: tuple[str, ...]) -> tuple[Column[Result], ...]:
    return tuple(column for column in columns().values() if column.group in groups)


def mapping(values: Mapping[str, Any]) -> Facts:
    """Values that no column declares, as the user typed them. Those in seconds have their unit."""
    return [_value(*named) for named in values.items() if named[1] not in (None, "", (), {})]


def _value(name: str, value: object) -> tuple[str, str]:
    if name.endswith("_s") and isinstance(value, (int, float)):
        return words(name[:-2]), f"{scalar(value)} s"
    return words(name), scalar(value)


def settings(holder: Any, *, every: bool = False) -> Facts:
    """The fields of a dataclass: ``every``, or those that no column has and that differ from the default."""
    told = {
        field.name: getattr(holder, field.name)
        for field in fields(holder)
        if every or (field.name not in columns() and getattr(holder, field.name) != field.default)
    }
    return mapping(told)


@lru_cache(maxsize=4096, typed=True)  # many values repeat; typed, because 1, 1.0 and True differ
def _named(name: str, value: Scalar, unit: str, digits: int) -> tuple[str, str]:
    """The name as words, and the value with its unit, which the name may have in its end."""
    if unit and isinstance(value, (int, float)) and not isinstance(value, bool):
        return words(UNIT_IN_NAME.sub("", name)), with_unit(value, unit, digits)
    return words(name), f"{value:,}" if type(value) is int else scalar(value)


def scalar(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        value = tuple(f"{name}={part}" for name, part in value.items())
    if isinstance(value, (tuple, list)):
        return ", ".join(map(scalar, value))
    return plain_lines(str(value.value if isinstance(value, Enum) else value))


def words(name: str) -> str:
    """``compile_cache_hits`` as words; names of environment variables stay unchanged."""
    return plain(name if name.startswith("env.") else name.replace("_", " "))
