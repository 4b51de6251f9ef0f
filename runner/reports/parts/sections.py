"""The sections of a report: one for each (suite, mode, dtype, device) of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.devices import PLATFORMS
from harness.schema import Protocol, Record, Scalar
from runner.analysis.digits import share_text
from runner.analysis.results import GroupSummary, Place, Result, Summary
from runner.names import file_part, merged_facts, plain

MOST_MODELS, SHOWN_MODELS = 200, 50  # a larger section shows the models with speedups furthest from 1


@dataclass(frozen=True, slots=True)
class Section:
    """The comparisons of one suite in one mode, dtype and device, in plan order, with their averages."""

    suite: str  # the label
    mode: str
    dtype: str
    device: str
    comparisons: tuple[Result, ...]
    groups: tuple[GroupSummary, ...]

    @property
    def title(self) -> str:
        return plain(conditions(self.suite, self.mode, self.dtype, self.device))

    @property
    def environment(self) -> dict[str, Scalar]:
        return merged_facts(c.record for c in self.comparisons)

    @property
    def rounds(self) -> str:
        return rounds_text(self.comparisons)


def sections(summary: Summary) -> tuple[Section, ...]:
    """The sections, in the order of the run."""
    labels = summary.labels
    comparisons: dict[Place, list[Result]] = {}
    for comparison in summary.comparisons:
        comparisons.setdefault(comparison.place, []).append(comparison)
    return tuple(
        Section(
            labels[place.suite], *place[1:], tuple(rows), tuple(g for g in summary.groups if g.place == place)
        )
        for place, rows in comparisons.items()
    )


def rounds_text(comparisons: Iterable[Result]) -> str:
    """``n = 10 to 100``; empty if nothing was timed."""
    counts = sorted({c.n for c in comparisons if c.n})
    return f"n = {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}" if counts else ""


def conditions(suite: str, mode: str, dtype: str, device: str) -> str:
    return f"{suite}, {mode}, {dtype}, {device}"


def conditions_of(record: Record, labels: Mapping[str, str]) -> str:
    """``labels``: of suites."""
    job, case = record.job, record.job.case
    return conditions(labels[case.suite], case.mode.value, job.dtype, job.device)


def compilers(part: Summary | Section) -> tuple[str, ...]:
    """Every candidate of the run or section, in plan order, including skipped candidates."""
    return tuple(dict.fromkeys(comparison.compiler for comparison in part.comparisons))


def environment_line(environment: Mapping[str, Scalar]) -> str:
    """``torch 2.13.0, Python 3.11.7, cpu: <name>, 2 threads, 2 CPUs``, without unknown facts."""
    facts = {name: plain(str(value)) for name, value in environment.items() if value not in (None, "")}
    versions = {"torch": "torch", **PLATFORMS, "python": "Python"}
    parts = (
        *(f"{label} {facts[name]}" for name, label in versions.items() if name in facts),
        ": ".join(facts[name] for name in ("device", "device_name") if name in facts),
        f"host {facts['cpu']}" if facts.get("cpu") not in (None, facts.get("device_name")) else "",
        _number("thread", facts.get("threads")),
        _number("CPU", facts.get("cpu_count")),
    )
    return ", ".join(filter(None, parts)) or "environment unknown"


def program_text(environment: Mapping[str, Scalar]) -> str:
    """``torchduet 0.1.0 (0123456789ab)``: what measured; "" for older records."""
    version, commit = (environment.get(f"torchduet_{name}") for name in ("version", "commit"))
    known = (f"torchduet {version}" if version else "", f"({commit})" if commit else "")
    return plain(" ".join(filter(None, known)))


def _number(noun: str, number: str | None) -> str:
    return "" if number is None else f"{number} {noun}{'' if number == '1' else 's'}"


def protocol_line(comparisons: Iterable[Result]) -> str:
    """The settings behind intervals, verdicts and p-values."""
    protocols = [c.record.job.protocol for c in comparisons]
    if not protocols:
        return "no records"
    thresholds = " | ".join(dict.fromkeys(share_text(p.noise_threshold) for p in protocols))
    alphas = " | ".join(dict.fromkeys(f"{p.alpha:g}" for p in protocols))
    ends = " | ".join(dict.fromkeys(_ending(p) for p in protocols))
    return f"noise threshold +-{thresholds}, q < {alphas}, 95 % intervals, {ends}"


def _ending(protocol: Protocol) -> str:
    rounds = protocol.repeat
    timed = f"rounds until +-{share_text(protocol.ci_width)}" if rounds is None else f"{rounds} rounds"
    return timed if protocol.performance else "nothing timed"


def plot_name(suite: str, dtype: str, kind: str = "") -> str:
    """File name of the plot of a suite (its label) in one dtype. Modes and devices are its panels."""
    return f"{file_part(suite)}_{file_part(dtype)}{kind}.png"


def top_models(
    comparisons: Sequence[Result], *, most: int = MOST_MODELS, otherwise: int = SHOWN_MODELS
) -> tuple[Sequence[Result], str]:
    """The results, and "". With more than ``most`` models: ``otherwise`` of them, and a sentence on this."""
    models = [tuple(group) for _, group in groupby(comparisons, key=lambda c: c.record.job.key)]
    if len(models) <= most:
        return comparisons, ""
    by_distance = sorted(range(len(models)), key=lambda place: -_distance(models[place]))
    kept = [comparison for place in sorted(by_distance[:otherwise]) for comparison in models[place]]
    shown = f"{otherwise:,} of {len(models):,} models, with the speedups furthest from 1"
    return kept, f"{shown}; report.html and the CSV files have all models."


def _distance(model: Sequence[Result]) -> float:
    """The largest absolute log speedup of the model; 0 without a valid speedup."""
    valid = (c.speedup for c in model if c.record.status.passed)
    return max((abs(math.log(speedup)) for speedup in valid if speedup), default=0.0)
