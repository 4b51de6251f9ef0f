"""The panel that report.html opens for one case: every fact of its record, and the samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from harness.declared import COMPILATION, MEMORY, OTHER, SIDES
from harness.metrics import declared
from harness.schema import Job, Parity, Record, Samples, Scalar
from runner.analysis.comparison import Comparison, Generation, Numbers, Summary
from runner.analysis.digits import (
    MISSING,
    memory_text,
    ms_text,
    p_text,
    ratio_text,
    seconds_text,
    share_text,
    steps_text,
)
from runner.labels import batch_text, notes_of, plain, ran_case, where_text
from runner.reports.pages.facts import Facts, lines, mapping, present, scalar, settings, text_of, words
from runner.reports.pages.work import phases, roofline
from runner.reports.parts.table import processes_cell, speedup_cell, verdict_text

RATIO = "memory_ratio"  # it has a name of its own in the group "Memory"
DIGITS = 5  # of the largest sample; finer than the clock's noise
CHUNK = 250  # panels that are compressed together
# one character for each place in a round's order
PLACES = MappingProxyType(dict(enumerate("0123456789abcdefghijklmnopqrstuvwxyz")))

Group = tuple[str, Facts]
T = TypeVar("T")


def panel_chunks(summary: Summary) -> Iterator[dict[str, Any]]:
    """The panels in chunks of ``CHUNK``: the page decompresses only the chunk of an opened panel."""
    kept = Kept()
    for first in range(0, len(summary.comparisons), CHUNK):
        yield _chunk(summary.comparisons[first : first + CHUNK], kept)


def _chunk(comparisons: Sequence[Comparison], kept: Kept) -> dict[str, Any]:
    """One chunk. Values that many cases share (environments, settings, samples of eager) are stored once."""
    shared: dict[str, list[Any]] = {"environments": [], "baselines": [], "facts": []}
    places: dict[Any, int] = {}

    def place(kind: str, key: object, value: object) -> int:
        if (kind, key) not in places:
            places[kind, key] = len(shared[kind])
            shared[kind].append(value)
        return places[kind, key]

    panels = []
    for comparison in comparisons:
        record = comparison.record
        facts = kept.of(record.environment, mapping)
        panel: dict[str, Any] = {
            "groups": [group for group in _groups(comparison) if group[1]],
            "more": {name: place("facts", id(same), same) for name, same in _shared(record, kept)},
            "environment": place("environments", tuple(facts), facts),
            "reproduce": plain(record.reproduce),
            "notes": [plain(note) for note in notes_of(record)],
            "failure": _failure(record),
            "roofline": roofline(comparison),
            "phases": phases(comparison),
        }
        if record.samples is not None and comparison.speedup is not None:
            scale = _scale(record.samples)
            counts = _counts(record.samples.baseline_s, scale)
            panel["samples"] = {
                "unit_ms": scale * 1e3,
                "baseline": place("baselines", (scale, tuple(counts)), counts),
                **_own_samples(record.samples, scale),
            }
        panels.append(panel)
    return {**shared, "panels": panels}


class Kept:
    """Caches the facts of objects that records share, by id. The records outlive this cache."""

    def __init__(self) -> None:
        self._facts: dict[int, Facts] = {}

    def of(self, shared: T, facts: Callable[[T], Facts]) -> Facts:
        if id(shared) not in self._facts:
            self._facts[id(shared)] = facts(shared)
        return self._facts[id(shared)]


# -- samples ---------------------------------------------------------------------


def _scale(samples: Samples) -> float:
    """Seconds for one count, so that the largest sample has ``DIGITS`` digits."""
    largest = max((*samples.baseline_s, *samples.candidate_s))
    return float(f"1e{math.floor(math.log10(largest)) + 1 - DIGITS}")


def _counts(seconds: Iterable[float], scale: float) -> list[int]:
    return [round(value / scale) for value in seconds]


def _own_samples(samples: Samples, scale: float) -> dict[str, Any]:
    own: dict[str, Any] = {
        "candidate": _counts(samples.candidate_s, scale),
        "baseline_place": _order(samples.baseline_position),
        "candidate_place": _order(samples.candidate_position),
        "iterations": samples.iterations_per_sample,
    }
    faults = (samples.baseline_minor_faults, samples.candidate_minor_faults)
    if any(any(column) for column in faults):
        own["faults"] = [[round(value) for value in column] for column in faults]
    prefill = (samples.baseline_prefill_s, samples.candidate_prefill_s)
    if any(prefill):
        own["prefill"] = [_counts(column, scale) for column in prefill]
    return own


def _order(places: Sequence[int]) -> str:
    """One character for each round; ``-`` for a place without a character."""
    return "".join(PLACES.get(place, "-") for place in places)


# -- facts -----------------------------------------------------------------------


def _groups(comparison: Comparison) -> Iterator[Group]:
    record = comparison.record
    yield "Result", _result(comparison)
    if record.parity is not None:
        yield "Parity", _parity(record.parity)
    own = _by_group(comparison)
    yield "Compilation", mapping(own[COMPILATION])
    yield "Memory", _memory(comparison, own[MEMORY])
    if comparison.work is not None:
        yield "Work", _derived(comparison.work)
    if comparison.noise is not None:
        yield "Noise", _derived(comparison.noise)
    if comparison.generation is not None:
        yield "Generation", _generation(comparison.generation)
    yield "Other metrics", mapping(own[OTHER])
    yield "What ran", _what_ran(record)
    yield "How it was measured", _times(record)


def _by_group(comparison: Comparison) -> dict[str, dict[str, Scalar]]:
    """The record's metrics and other derived metrics except work and noise, by group, in record order."""
    found: dict[str, dict[str, Scalar]] = {COMPILATION: {}, MEMORY: {}, OTHER: {}}
    known = declared().by_name
    for name, value in comparison.record.metrics.items():
        metric = known.get(name)
        group = metric.group if metric else MEMORY if name.endswith("_bytes") else OTHER
        found[group if group in found else OTHER][name] = value
    for name, value in comparison.derived.items():
        metric = known.get(name)
        if metric is not None and metric.group in found and name != RATIO:
            found[metric.group][name] = value
    return found


def _shared(record: Record, kept: Kept) -> Iterator[Group]:
    """Facts that many panels share. They follow the facts of the group with the same name."""
    yield "What ran", kept.of(record.job, _asked)
    yield "How it was measured", kept.of(record.job.protocol, lambda p: settings(p, all_of_them=True))


def _result(comparison: Comparison) -> Facts:
    number = comparison
    return present(
        ("speedup [95 % interval]", speedup_cell(number), number.speedup),
        ("verdict", verdict_text(number), number.verdict),
        ("why it is withheld", plain(number.unsteady or ""), number.unsteady),
        ("90 % interval, for same", _between(number.low_90, number.high_90), number.low_90),
        ("sd between processes", processes_cell(number), number.processes),
        ("status", number.record.status.value, number.record.status),
        ("p, q (over the whole run)", _both(number.p_value, number.q_value), number.p_value),
        ("eager", f"{text_of(number.baseline_ms, ms_text)} ms, median", number.baseline_ms),
        ("candidate", f"{text_of(number.candidate_ms, ms_text)} ms, median", number.candidate_ms),
        ("ratio of medians", text_of(number.speedup_of_medians, ratio_text), number.speedup_of_medians),
        ("rounds", f"{number.n:,}", number.n or None),
        (
            "compilation",
            f"{text_of(number.compilation_latency_s, seconds_text)} s",
            number.compilation_latency_s,
        ),
        ("break-even", text_of(number.break_even_steps, _steps), number.break_even_steps),
    )


def _steps(value: float) -> str:
    return steps_text(value) if math.isinf(value) else f"{steps_text(value)} steps"


def _between(low: float | None, high: float | None) -> str:
    return f"{text_of(low, ratio_text)} to {text_of(high, ratio_text)}"


def _both(p_value: float | None, q_value: float | None) -> str:
    return f"{text_of(p_value, p_text)}, {text_of(q_value, p_text)}"


def _parity(parity: Parity) -> Facts:
    worst = parity.worst
    facts: Facts = [
        ("tensors compared", f"{parity.tensors:,}"),
        ("tensors off", f"{parity.failed:,}"),
        ("rule, reference", plain(f"{parity.rule}, {parity.reference}")),
        ("tolerance, multiplier", f"{parity.tolerance:g}, {parity.multiplier:g}"),
    ]
    if worst is not None:
        facts += [
            ("tensor nearest its limit", plain(worst.name)),
            ("its elements, RMS size", f"{worst.numel:,}, {worst.scale:.3g}"),
            (
                "RMS error: candidate, eager, limit",
                f"{worst.candidate_rmse:.3g}, {worst.eager_rmse:.3g}, {worst.allowed:.3g}",
            ),
            ("largest error: candidate, limit", f"{worst.candidate_max:.3g}, {worst.allowed_max:.3g}"),
            *([("why it failed", plain(worst.failure))] if worst.failure else []),
        ]
    if worst is not None and worst.slope is not None and worst.allowed_slope is not None:
        facts.append(
            ("on the whole off by: candidate, limit", f"{worst.slope:.3%}, {worst.allowed_slope:.3%}")
        )
    if parity.resolution_median is not None and parity.resolution_largest is not None:
        shares = share_text(parity.resolution_median), share_text(parity.resolution_largest)
        facts.append(("largest error that passes: median tensor, any tensor", ", ".join(shares)))
    if parity.lower_precision:
        facts.append(("errors like those of", plain(parity.lower_precision)))
    where = "" if parity.where is None else where_text(parity.where)
    facts += [(name, plain(text)) for name, text in (("found by", parity.found_by), ("where", where)) if text]
    if parity.steps:
        facts.append(("steps in a row", f"{parity.steps}"))
        facts.append(("other data", plain(" and ".join(parity.other_data)) or "none"))
    facts += [("not checked", plain(why)) for why in parity.not_checked]
    if parity.unjudged:
        facts.append(("cannot be judged", plain(parity.unjudged)))
    facts += [
        ("eager twice gives the same bits", scalar(parity.eager_bit_equal)),
        ("eager differs from itself by", share_text(parity.eager_spread)),
    ]
    if parity.noise_tensors:
        facts.append(("no correct digit even in eager", plain(", ".join(parity.noise_tensors))))
    if parity.sensitive_tensors:
        facts.append(("as near as eager with perturbed weights", plain(", ".join(parity.sensitive_tensors))))
    return facts


def _memory(comparison: Comparison, metrics: Mapping[str, Scalar]) -> Facts:
    facts = present(
        ("eager's peak / candidate's", text_of(comparison.memory_ratio, ratio_text), comparison.memory_ratio)
    )
    for name, value in metrics.items():
        number = isinstance(value, (int, float)) and value > 0
        facts.append((words(name.removesuffix("_bytes")), _bytes(value) if number else scalar(value)))
    return facts


def _bytes(value: Any) -> str:
    return memory_text(value / 1e9)


def _derived(numbers: Numbers) -> Facts:
    """Every number that is not None; shares in percent."""
    facts: Facts = []
    for name, value in numbers.items():
        is_share = "share" in name or name.endswith("_cv")
        if value is not None:
            text = share_text(value) if is_share and isinstance(value, float) else scalar(value)
            facts.append((words(name), text))
    return facts


def _generation(found: Generation) -> Facts:
    parts = {"prefill": found.prefill, "decode": found.decode}
    numbers = {
        f"{part}_{field.name}": getattr(times, field.name)
        for part, times in parts.items()
        if times is not None
        for field in fields(times)
    }
    rates = {f"{side}tokens_per_s": getattr(found, f"{side}tokens_per_s") for side in SIDES}
    return _derived(numbers | rates)


def _what_ran(record: Record) -> Facts:
    model = record.model
    facts: Facts = [("batch", batch_text(ran_case(record)))]
    if model is not None:
        facts += [
            ("parameters", f"{model.parameters:,}"),
            ("their size", _bytes(model.parameter_bytes) if model.parameter_bytes else MISSING),
            ("inputs", "\n".join(plain(shape) for shape in model.input_shapes)),
        ]
    return facts


def _asked(job: Job) -> Facts:
    """The facts of a job, equal for all its candidates."""
    facts = [fact for fact in settings(job.case, all_of_them=False) if fact[0] != "batch size"]
    facts += [("device", plain(job.device)), ("precision", plain(job.dtype))]
    for field in fields(job):  # parts of the job with options of their own
        found = getattr(job, field.name)
        if is_dataclass(found) and found is not job.protocol and found is not job.case:
            facts += settings(found, all_of_them=False)
        elif field.name == "baseline_dtype" and found is not None:
            facts.append(("eager's precision", plain(found)))
    return [*facts, ("measured together", plain(", ".join(job.candidates)))]


def _times(record: Record) -> Facts:
    times = (("started", record.started), ("ended", record.ended))
    version = ("record format", str(record.schema_version))
    return [*((name, plain(text)) for name, text in times if text), version]


def _failure(record: Record) -> dict[str, str] | None:
    if record.failure is None:
        return None
    found = {field.name: getattr(record.failure, field.name) for field in fields(record.failure)}
    return {name: lines(str(value)) for name, value in found.items() if value}
