"""``--processes``: a job measured in several fresh processes, whose samples become one record.

What differs between processes (where memory lies, which kernels an autotuner picked, what a
hash seed ordered) is the same for all rounds of one: no number of rounds shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from harness.schema import Failure, Job, Record, Samples

Measure = Callable[[Job, tuple[str, ...]], Iterator[Record]]
"""Measures these candidates of a job in a fresh process."""


def with_processes(
    job: Job, candidates: tuple[str, ...], measure: Measure, stop: Callable[[], bool]
) -> Iterator[Record]:
    """The job's records, each with the samples of ``job.protocol.processes`` processes, the first's parity.

    A candidate that fails in any process has failed. Metrics are the first process's.
    """
    if job.protocol.processes == 1 or not job.protocol.performance:
        yield from measure(job, candidates)
        return
    going: dict[str, list[Record]] = {}
    for record in measure(job, candidates):
        if record.samples is None:
            yield record
        else:
            going[record.candidate] = [record]
    for number in range(2, job.protocol.processes + 1):
        if not going or stop():
            break
        again = replace(job, protocol=replace(job.protocol, accuracy=False, process=number - 1))
        for record in measure(again, tuple(going)):
            found = going[record.candidate]
            why_not = _why_not(found[0], record)
            if why_not is None:
                found.append(record)
            else:
                del going[record.candidate]
                yield _failed(found[0], record, number, why_not)
    for found in going.values():
        yield _joined(found, job.protocol.processes)


def _why_not(first: Record, later: Record) -> Failure | None:
    """Why a later process's samples cannot stand beside the first's; None if they can."""
    if later.samples is None:
        return later.failure or Failure(kind="NoSamples", message="gave no samples", phase="measure")
    batches = [None if r.model is None else r.model.batch_size for r in (first, later)]
    if batches[0] != batches[1]:
        message = f"batch {batches[1]} after batch {batches[0]}: their times are not of the same step"
        return Failure(kind="OtherBatch", message=message, phase="measure")
    return None


def _failed(first: Record, later: Record, number: int, failure: Failure) -> Record:
    status = later.status if later.samples is None else first.status
    message = f"in process {number} of {first.job.protocol.processes}: {failure.message}"
    return replace(
        first,
        status=status,
        failure=replace(failure, message=message),
        samples=None,
        notes=(*first.notes, *later.notes),
        ended=later.ended,
    )


def _joined(found: Sequence[Record], asked: int) -> Record:
    samples = [record.samples for record in found if record.samples is not None]
    notes = dict.fromkeys(note for record in found for note in record.notes)
    if len(found) < asked:
        notes[f"stopped after {len(found)} of {asked} processes"] = None
    return replace(found[0], samples=joined_samples(samples), notes=tuple(notes), ended=found[-1].ended)


def joined_samples(parts: Sequence[Samples]) -> Samples:
    """The samples of several processes, one after the other."""
    columns: dict[str, Any] = {
        field.name: tuple(value for part in parts for value in getattr(part, field.name))
        for field in fields(Samples)
        if isinstance(getattr(parts[0], field.name), tuple)
    }
    columns["rounds_by_process"] = tuple(len(part) for part in parts)
    return replace(parts[0], **columns)
