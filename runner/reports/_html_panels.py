"""What report.html shows of one case when it is opened: every fact of its record, and the samples."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, cast

from harness.schema import Job, Parity, Record, Samples, Scalar
from runner.comparison import Comparison, Summary
from runner.digits import (
    MISSING,
    memory_text,
    ms_text,
    p_text,
    ratio_text,
    seconds_text,
    share_text,
    steps_text,
)
from runner.labels import batch_text, plain, ran_case
from runner.reports._html_facts import Facts, lines, mapping, present, scalar, settings, text_of, words
from runner.reports._html_work import phases, roofline
from runner.reports._table import speedup_cell, verdict_text

DIGITS = 5  # of a sample, counted at the largest: finer than any clock noise on a step
OF_COMPILATION = (
    *("compil", "graph", "unique_graph", "recompile", "calls_captured", "autograd_"),
    *("cudagraph", "candidate_spent_compile"),
)
CHUNK = 250  # panels that travel, and are unpacked, together
# one character a place in a round's order
PLACES = MappingProxyType(dict(enumerate("0123456789abcdefghijklmnopqrstuvwxyz")))

Group = tuple[str, Facts]


def panel_chunks(summary: Summary) -> Iterator[dict[str, Any]]:
    """The panels, ``CHUNK`` at a time: the page unpacks only what somebody looks at."""
    kept = Kept()
    for first in range(0, len(summary.comparisons), CHUNK):
        yield _chunk(summary.comparisons[first : first + CHUNK], kept)


def _chunk(comparisons: Sequence[Comparison], kept: Kept) -> dict[str, Any]:
    """What many of its cases share (environments, settings, the samples of eager) stands once."""
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
        key, facts = kept.environment(record)
        panel: dict[str, Any] = {
            "groups": [group for group in _groups(comparison) if group[1]],
            "more": {name: place("facts", id(same), same) for name, same in _shared(record, kept)},
            "environment": place("environments", key, facts),
            "reproduce": plain(record.reproduce),
            "notes": [plain(note) for note in record.notes],
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
    """Texts of what records share, made once. The records live as long as this does, so ids are theirs."""

    def __init__(self) -> None:
        self._environments: dict[int, tuple[object, Facts]] = {}
        self._protocols: dict[int, Facts] = {}
        self._jobs: dict[int, Facts] = {}

    def environment(self, record: Record) -> tuple[object, Facts]:
        """(what tells it from others, its facts)"""
        found = self._environments.get(id(record.environment))
        if found is None:
            facts = mapping(record.environment)
            found = self._environments[id(record.environment)] = (tuple(facts), facts)
        return found

    def job(self, record: Record) -> Facts:
        found = self._jobs.get(id(record.job))
        if found is None:
            found = self._jobs[id(record.job)] = _asked(record.job)
        return found

    def protocol(self, record: Record) -> Facts:
        protocol = record.job.protocol
        found = self._protocols.get(id(protocol))
        if found is None:
            found = self._protocols[id(protocol)] = settings(protocol, all_of_them=True)
        return found


# -- samples ---------------------------------------------------------------------


def _scale(samples: Samples) -> float:
    """Seconds a count, so that the largest sample has ``DIGITS`` digits."""
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
    """One character a round; ``-`` for a place beyond what one character can say."""
    return "".join(PLACES.get(place, "-") for place in places)


# -- facts -----------------------------------------------------------------------


def _groups(comparison: Comparison) -> Iterator[Group]:
    record = comparison.record
    yield "Result", _result(comparison)
    if record.parity is not None:
        yield "Parity", _parity(record.parity)
    memory = {name: value for name, value in record.metrics.items() if name.endswith("_bytes")}
    others = {name: value for name, value in record.metrics.items() if name not in memory}
    compilation = {name: value for name, value in others.items() if name.startswith(OF_COMPILATION)}
    yield "Compilation", mapping(compilation)
    yield "Memory", _memory(comparison, memory)
    for field in fields(comparison):  # the parts that are derived together: work, noise, generation
        part = getattr(comparison, field.name)
        if _is_part(cast("Hashable", type(part))):
            yield field.name.capitalize(), _derived(part)
    yield "Other metrics", mapping({n: value for n, value in others.items() if n not in compilation})
    yield "What ran", _what_ran(record)
    yield "How it was measured", _times(record)


def _shared(record: Record, kept: Kept) -> Iterator[Group]:
    """Facts that follow those of a group of the same name, and are the same in many panels."""
    yield "What ran", kept.job(record)
    yield "How it was measured", kept.protocol(record)


def _result(comparison: Comparison) -> Facts:
    number = comparison
    return present(
        ("speedup [95 % interval]", speedup_cell(number), number.speedup),
        ("verdict", verdict_text(number), number.verdict),
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
    facts += [
        ("eager twice gives the same bits", scalar(parity.eager_bit_equal)),
        ("eager differs from itself by", share_text(parity.eager_spread)),
    ]
    if parity.noise_tensors:
        facts.append(("no correct digit even in eager", plain(", ".join(parity.noise_tensors))))
    if parity.sensitive_tensors:
        facts.append(("as near as eager with shaken weights", plain(", ".join(parity.sensitive_tensors))))
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


@cache
def _is_part(kind: type) -> bool:
    """Whether values of this type are numbers that are derived together."""
    return is_dataclass(kind) and kind is not Record


def _derived(part: Any, before: str = "") -> Facts:
    """Every number of a part that exists; shares in per cent, parts of the part after their name."""
    facts: Facts = []
    for name, is_share in _numbers_of(cast("Hashable", type(part))):
        value = getattr(part, name)
        if _is_part(cast("Hashable", type(value))):
            facts += _derived(value, f"{before}{name}_")
        elif is_share and isinstance(value, float):
            facts.append((words(f"{before}{name}"), share_text(value)))
        elif value is not None:
            facts.append((words(f"{before}{name}"), scalar(value)))
    return facts


@cache
def _numbers_of(kind: Any) -> tuple[tuple[str, bool], ...]:
    """The names of such a type's fields, and whether each is a share."""
    names = (field.name for field in fields(kind))
    return tuple((name, "share" in name or name.endswith("_cv")) for name in names)


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
    """What is the same for all candidates of a job."""
    facts = [fact for fact in settings(job.case, all_of_them=False) if fact[0] != "batch size"]
    facts += [("device", plain(job.device)), ("precision", plain(job.dtype))]
    for field in fields(job):  # what was asked for beyond the case: every part that has one
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
