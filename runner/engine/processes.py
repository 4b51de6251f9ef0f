"""``--processes``: a job measured in several fresh processes, whose samples become one record.

Memory layout, an autotuner's choice of kernels and the order of hashes are constant within a process.
More rounds in one process cannot show how much they change the times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from statistics import median
from typing import Any

from harness.metrics import of_compiling
from harness.protocol import AUTO
from harness.schema import AS_FOUND, Compilation, Failure, Job, Protocol, Record, Samples
from runner.analysis.verdicts.between import LEAST_ACROSS
from runner.analysis.verdicts.decision import Between, judged
from runner.analysis.verdicts.family import assumed_of
from runner.engine import Pause
from runner.engine.stopping import more_processes
from runner.plan.allocators import BOTH, SYSTEM

Measure = Callable[[Job, tuple[str, ...]], Iterator[Record]]
"""Measures these candidates of a job in a fresh process."""

FAULTS = 10  # page faults of a median step, below which malloc's settings hardly change its time


def with_processes(
    job: Job, candidates: tuple[str, ...], measure: Measure, stop: Callable[[], bool]
) -> Iterator[Record | Pause]:
    """The job's records, each with the samples of ``job.protocol.processes`` processes, with pauses between.

    Every process checks parity, with its late check; metrics are those of the first. Compilations of later
    processes, which share the compile caches unless every worker has its own, are kept. A candidate that
    fails in any process has failed. With ``auto``, processes are added for the candidates whose open verdict
    they can close. With ``--allocator=both``, processes with malloc as the system has it follow.
    """
    if not job.protocol.performance:
        yield from measure(job, candidates)
        return
    steps = _alone(job, candidates, measure, stop)
    yield from _with_system(job, steps, measure, stop) if job.extras.allocator == BOTH else steps


def _alone(
    job: Job, candidates: tuple[str, ...], measure: Measure, stop: Callable[[], bool]
) -> Iterator[Record | Pause]:
    """Without ``--allocator=both``."""
    if job.protocol.processes == 1:
        yield from measure(job, candidates)
        return
    going: dict[str, list[Record]] = {}
    for record in measure(job, candidates):
        if record.samples is None:
            yield record
        else:
            going[record.candidate] = [record]
    number = 1
    while wanting := {name: records for name, records in going.items() if _another(job.protocol, records)}:
        yield Pause()
        if stop():
            break
        number += 1
        protocol = replace(job.protocol, process=number - 1)
        for record in measure(replace(job, protocol=protocol), tuple(wanting)):
            records = going[record.candidate]
            why_not = _why_not(records[0], record)
            if why_not is None:
                records.append(record)
            else:
                del going[record.candidate]
                yield _failed(records[0], record, number, why_not)
    for records in going.values():
        yield _joined(records, job.protocol.processes)


def _with_system(
    job: Job, steps: Iterator[Record | Pause], measure: Measure, stop: Callable[[], bool]
) -> Iterator[Record | Pause]:
    """The records, each with ``system_samples``: of as many processes, and at least ``LEAST_ACROSS``.

    Two are enough where neither eager's steps nor the candidate's have page faults. Chance decides in each
    process which memory glibc gives back.
    """
    timed: dict[str, Record] = {}
    for step in steps:
        if isinstance(step, Record) and step.samples is not None and step.status.passed:
            timed[step.candidate] = step
        else:
            yield step
    count = max(LEAST_ACROSS, job.protocol.processes)
    protocol = replace(job.protocol, processes=count, accuracy=False)
    extras, parts = replace(job.extras, allocator=SYSTEM), {name: list[Samples]() for name in timed}
    going = tuple(timed)
    for number in range(count):
        if going:
            yield Pause()
        if stop() or not going:
            break
        again = replace(job, extras=extras, protocol=replace(protocol, process=number))
        measured = {record.candidate: record.samples for record in measure(again, going)}
        known = {name: samples for name, samples in measured.items() if samples is not None}
        for name, samples in known.items():
            parts[name].append(samples)
        going = tuple(name for name in known if number < 1 or any(map(_faults, parts[name])))
    for name, record in timed.items():
        yield replace(record, system_samples=joined_samples(parts[name]) if parts[name] else None)


def _faults(samples: Samples) -> bool:
    sides = (samples.baseline_minor_faults, samples.candidate_minor_faults)
    return any(median(side) >= FAULTS for side in sides if side)


def _another(protocol: Protocol, records: Sequence[Record]) -> bool:
    if protocol.processes != AUTO:
        return len(records) < protocol.processes
    samples = joined_samples([record.samples for record in records if record.samples is not None])
    by_process = samples.rounds_by_process if len(records) > 1 else ()
    between = Between(assumed_sd=assumed_of(records[0]))
    estimate = judged(samples.baseline_s, samples.candidate_s, by_process, between)
    return more_processes(protocol, estimate, calibrated=bool(records[0].calibrated))


def _why_not(first: Record, later: Record) -> Failure | None:
    """Why the later process's samples cannot be combined with the first's; None if they can."""
    if later.samples is None:
        return later.failure or Failure(kind="NoSamples", message="no samples", phase="measure")
    batches = [None if r.model is None else r.model.batch_size for r in (first, later)]
    if batches[0] != batches[1]:
        message = f"batch {batches[1]}, but batch {batches[0]} in the first process: the steps differ"
        return Failure(kind="OtherBatch", message=message, phase="measure")
    return None


def _failed(first: Record, later: Record, number: int, failure: Failure) -> Record:
    status = later.status if later.samples is None else first.status
    processes = first.job.protocol.processes
    place = f"process {number}" if processes == AUTO else f"process {number} of {processes}"
    return replace(
        first,
        status=status,
        failure=replace(failure, message=f"in {place}: {failure.message}"),
        samples=None,
        notes=(*first.notes, *later.notes),
        ended=later.ended,
    )


def _joined(records: Sequence[Record], processes: int) -> Record:
    """One record. If parity failed in a later process, its status and parity are that process's."""
    samples = [record.samples for record in records if record.samples is not None]
    notes = dict.fromkeys(note for record in records for note in record.notes)
    if len(records) < processes:
        notes[f"stopped after {len(records)} of {processes} processes"] = None
    judged_by = records[0]
    for number, record in enumerate(records[1:], start=2):
        if judged_by.status.passed and not record.status.passed:
            judged_by = record
            notes[f"{record.status.value} in process {number} of {len(records)}"] = None
    return replace(
        records[0],
        status=judged_by.status,
        parity=judged_by.parity,
        compilations=_of_later(records[1:]),
        samples=joined_samples(samples) if len(samples) > 1 or processes != AUTO else samples[0],
        notes=tuple(notes),
        ended=records[-1].ended,
    )


def _of_later(later: Sequence[Record]) -> tuple[Compilation, ...]:
    """What compiling took in the processes after the first."""
    return tuple(
        Compilation(
            start=AS_FOUND,
            round=number,
            metrics={name: record.metrics[name] for name in of_compiling() if name in record.metrics},
            status=record.status,
        )
        for number, record in enumerate(later, start=1)
    )


def joined_samples(parts: Sequence[Samples]) -> Samples:
    """The samples of several processes, one after the other."""
    columns: dict[str, Any] = {
        field.name: tuple(value for part in parts for value in getattr(part, field.name))
        for field in fields(Samples)
        if isinstance(getattr(parts[0], field.name), tuple)
    }
    columns["rounds_by_process"] = tuple(len(part) for part in parts)
    return replace(parts[0], **columns)
