"""The panel that report.html opens for one case: every fact of its record, and the samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any

from harness.declared import COMPILATION, MEMORY, NOISE, OTHER, SIDES, WORK
from harness.metrics import declared
from harness.schema import Job, Parity, Record, Samples
from runner.analysis.columns import GENERATION, PARITY, RESULT, SIZE, STEADINESS, columns
from runner.analysis.digits import estimate_text, share_text
from runner.analysis.results import Comparison, Summary
from runner.labels import batch_text, notes_of, plain, ran_case, where_text
from runner.reports.pages.facts import Facts, mapping, of_group, scalar, settings, words
from runner.reports.parts.grid import plain_lines
from runner.store.figures import Figures

OF_PARITY = (
    *("multiplier", "lower_precision", "steps", "other_data", "random", "not_checked", "unjudged"),
    *("noise_tensors", "sensitive_tensors"),
)
OF_WORST = ("numel", "slope", "allowed_slope")
"""Fields that no column has."""
DIGITS = 5  # of the largest sample, in counts; finer than the clock's noise
CHUNK = 250  # panels that are compressed together
# one character for each place in a round's order
PLACES = MappingProxyType(dict(enumerate("0123456789abcdefghijklmnopqrstuvwxyz")))


def panel_chunks(summary: Summary) -> Iterator[list[dict[str, Any]]]:
    """The panels in chunks of ``CHUNK``: the page decompresses only the chunk of an opened panel."""
    for first in range(0, len(summary.comparisons), CHUNK):
        yield [_panel(c, summary.figures) for c in summary.comparisons[first : first + CHUNK]]


def _panel(comparison: Comparison, figures: Mapping[tuple[str, str], Sequence[Figures]]) -> dict[str, Any]:
    record = comparison.record
    timed = record.samples is not None and comparison.speedup is not None
    return {
        "groups": [group for group in _groups(comparison) if group[1]],
        "reproduce": plain(record.reproduce),
        "notes": [plain(note) for note in notes_of(record)],
        "failure": _failure(record),
        "roofline": _roofline(comparison),
        "phases": _phases(comparison),
        "samples": _samples(record.samples) if timed and record.samples else None,
        "parity": _parity(record, figures.get((record.job.key, record.candidate), ())),
    }


def _parity(record: Record, tensors: Sequence[Figures]) -> dict[str, Any] | None:
    """The picture's columns; None without tensors."""
    if not tensors:
        return None
    numbers = ("call", "eager", "noisy", "candidate", "outcome")
    columns = {name: [getattr(tensor, name) for tensor in tensors] for name in numbers}
    reference = record.parity.reference if record.parity is not None else "fp64"
    return {"tensors": [plain(tensor.tensor) for tensor in tensors], "reference": reference, **columns}


# -- samples ---------------------------------------------------------------------


def _counts(seconds: Iterable[float], scale: float) -> list[int]:
    return [round(value / scale) for value in seconds]


def _samples(samples: Samples) -> dict[str, Any]:
    largest = max((*samples.baseline_s, *samples.candidate_s))
    scale = float(f"1e{math.floor(math.log10(largest)) + 1 - DIGITS}")  # seconds for one count
    shown: dict[str, Any] = {
        "unit_ms": scale * 1e3,
        "baseline": _counts(samples.baseline_s, scale),
        "candidate": _counts(samples.candidate_s, scale),
        "baseline_place": _order(samples.baseline_position),
        "candidate_place": _order(samples.candidate_position),
        "iterations": samples.iterations_per_sample,
    }
    faults = (samples.baseline_minor_faults, samples.candidate_minor_faults)
    if any(any(column) for column in faults):
        shown["faults"] = [[round(value) for value in column] for column in faults]
    prefill = (samples.baseline_prefill_s, samples.candidate_prefill_s)
    if any(prefill):
        shown["prefill"] = [_counts(column, scale) for column in prefill]
    return shown


def _order(places: Sequence[int]) -> str:
    """One character for each round; ``-`` for a place without a character."""
    return "".join(PLACES.get(place, "-") for place in places)


# -- the charts of the work ------------------------------------------------------


def _roofline(comparison: Comparison) -> dict[str, Any] | None:
    """FLOP/byte of the step, TFLOP/s of both sides, and the two limits of the device; None if unknown."""
    number = comparison.number
    roof, intensity = number("roof_tflop_per_s"), number("flop_per_byte")
    if not comparison.n or roof is None or intensity is None:
        return None
    shares = [number(f"{side}share_of_roof") for side in SIDES]
    return {
        "flop_per_byte": _short(intensity),
        "eager": _short(number("baseline_tflop_per_s") if shares[0] is not None else None),
        "candidate": _short(number("candidate_tflop_per_s")),
        "roof": _short(roof),
        "shares": [None if share is None else share_text(share) for share in shares],
        "peak_flop_per_s": _short(number("measured_peak_tflop_per_s"), 1e12),
        "bandwidth_bytes_per_s": _short(number("measured_bandwidth_gb_per_s"), 1e9),
    }


def _phases(comparison: Comparison) -> list[tuple[str, float]] | None:
    """(phase, seconds) for the phases that torch reported; None for fewer than two phases.

    A phase includes the phases after it, except the phases of the same level.
    """
    times = [
        (metric.phase, float(f"{seconds:.4g}"))
        for metric in declared().metrics
        if metric.phase and (seconds := comparison.number(metric.name)) is not None and seconds > 0
    ]
    return times if len(times) > 1 else None


def _short(value: float | None, unit: float = 1.0) -> float | None:
    return None if value is None else float(f"{value * unit:.5g}")


# -- facts -----------------------------------------------------------------------


def _groups(comparison: Comparison) -> Iterator[tuple[str, Facts]]:
    """The columns by group. A metric that no column declares is in the last group of metrics."""
    record = comparison.record
    others = {name: value for name, value in record.metrics.items() if name not in columns()}
    speedup = [("speedup [95 % interval]", estimate_text(comparison.estimate))] if comparison.n else []
    yield "Result", [*speedup, *of_group(comparison, RESULT)]
    if record.parity is not None:
        yield "Parity", [*of_group(comparison, PARITY), *_more_of(record.parity)]
    yield "Compilation", of_group(comparison, COMPILATION)
    yield "Memory", of_group(comparison, MEMORY)
    if comparison.n:
        yield "Work", of_group(comparison, WORK)
        yield "Noise", of_group(comparison, STEADINESS, NOISE)
    yield "Generation", of_group(comparison, GENERATION)
    yield "Other metrics", [*of_group(comparison, OTHER), *mapping(others)]
    ran = [("batch", batch_text(ran_case(record))), *of_group(comparison, SIZE), *_of_job(record.job)]
    yield "What ran", ran
    yield "How it was measured", [*_times(record), *settings(record.job.protocol, all_of_them=True)]
    yield "Environment", mapping(record.environment)


def _more_of(parity: Parity) -> Facts:
    """What no column has: of the worst tensor, the lists, and the place of a localized failure."""
    facts = [(words(name), scalar(value)) for name in OF_PARITY if (value := getattr(parity, name))]
    if parity.worst is not None:
        facts += mapping({f"worst_{name}": getattr(parity.worst, name) for name in OF_WORST})
    return facts if parity.where is None else [*facts, ("where", plain(where_text(parity.where)))]


def _of_job(job: Job) -> Facts:
    """The facts of a job, equal for all its candidates."""
    facts = [fact for fact in settings(job.case, all_of_them=False) if fact[0] != "batch size"]
    facts += [("device", plain(job.device)), ("precision", plain(job.dtype))]
    for field in fields(job):  # parts of the job with options of their own
        value = getattr(job, field.name)
        if is_dataclass(value) and value is not job.protocol and value is not job.case:
            facts += settings(value, all_of_them=False)
        elif field.name == "baseline_dtype" and value is not None:
            facts.append(("eager's precision", plain(value)))
    return [*facts, ("measured together", plain(", ".join(job.candidates)))]


def _times(record: Record) -> Facts:
    times = (("started", record.started), ("ended", record.ended))
    version = ("record format", str(record.schema_version))
    return [*((name, plain(text)) for name, text in times if text), version]


def _failure(record: Record) -> dict[str, str] | None:
    if record.failure is None:
        return None
    values = {field.name: getattr(record.failure, field.name) for field in fields(record.failure)}
    return {name: plain_lines(str(value)) for name, value in values.items() if value}
