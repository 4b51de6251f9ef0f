"""Computes the evidence on one compiler from a run of two environments: records -> ``Evidence``."""

from __future__ import annotations

from collections.abc import Sequence

from harness.schema import Record, of_environment
from runner.analysis.estimate import Estimate
from runner.analysis.verdicts.between import ASSUMED_ACROSS
from runner.analysis.verdicts.pairs import ratio_of
from runner.labels import plain
from runner.runs.bisect.search import Evidence
from runner.runs.compare.run import NO_RECORD


def evidence(records: Sequence[Record], compiler: str, older: str, newer: str, folder: str = "") -> Evidence:
    """The result of ``compiler`` in the environment ``newer`` compared with ``older``, from these records."""
    found = {record.candidate: record for record in records}
    one, other = (found.get(of_environment(compiler, name)) for name in (older, newer))
    speed, rounds = _speed(one, other)
    failure = other.failure if other is not None else None
    return Evidence(
        against=older,
        version=newer,
        status_against=one.status.value if one is not None else NO_RECORD,
        status=other.status.value if other is not None else NO_RECORD,
        speed=speed,
        rounds=rounds,
        folder=folder,
        failure=plain(f"{failure.kind}: {failure.message}") if failure is not None else "",
    )


def _speed(one: Record | None, other: Record | None) -> tuple[Estimate | None, int]:
    """The ratio of times, from the rounds in which both were timed."""
    if one is None or other is None or not (one.status.passed and other.status.passed):
        return None, 0
    if one.samples is None or other.samples is None:
        return None, 0
    ratio = ratio_of(one.samples, other.samples, ASSUMED_ACROSS)
    return (None, 0) if ratio is None else (ratio, ratio.n)
