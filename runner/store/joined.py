"""One result of each (job, candidate), from the flat records of its processes.

A record is one candidate in one process. ``results_of`` derives the results; nothing stores them. Records of
before format 3 hold their later processes: ``flat`` takes these apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import accumulate, pairwise
from typing import Any

from harness.metrics import of_compiling
from harness.protocol import AUTO
from harness.schema import (
    AS_FOUND,
    EAGER_START,
    SIZES,
    STOPPED,
    Compilation,
    Failure,
    Record,
    Samples,
    Status,
    eager_of,
)

CHECKED = "checked"
"""In ``experiment``: a process that checks the parity of what an experiment's start has loaded."""

Key = tuple[str, str, str, str, int, int]


def key_of(record: Record) -> Key:
    """What a record measured: two records of one process are one too many."""
    where = record.job.key, record.candidate
    return *where, record.experiment, record.start, record.round, record.process


def results_of(records: Iterable[Record]) -> tuple[Record, ...]:
    """Exactly one for each (job, candidate) with a timed process, in the order of these."""
    timed: dict[tuple[str, str], list[Record]] = {}
    starts: dict[str, list[Record]] = {}
    for record in records:
        if record.start:
            starts.setdefault(record.job.key, []).append(record)
        elif not record.experiment:  # others are for those who asked: --why
            timed.setdefault((record.job.key, record.candidate), []).append(record)
    return tuple(_result(own, starts.get(key, ())) for (key, _), own in timed.items())


def _result(processes: list[Record], starts: Sequence[Record]) -> Record:
    processes.sort(key=lambda record: record.process)
    name = processes[0].candidate
    env = name.rpartition("@")[2] if processes[0].job.environments else ""
    names = {name, eager_of(env)}  # eager raced for every candidate of its environment
    own = [record for record in starts if record.candidate in names]
    if all(record.start == EAGER_START for record in own):
        own = []
    checked = {(r.start, r.round): r for r in own if r.experiment == CHECKED and r.candidate == name}
    begun = [r for r in own if r.experiment != CHECKED]
    compilations = tuple(compilation_of(r, checked.get((r.start, r.round))) for r in begun)
    joined = _joined(processes) if len(processes) > 1 else processes[0]
    planned = joined.job.protocol.processes
    if planned != AUTO and len(processes) < planned and joined.samples is not None:
        note = f"stopped after {len(processes)} of {planned} processes"
        notes = tuple(dict.fromkeys((*joined.notes, note)))
        joined = replace(joined, rounds_ended=STOPPED, notes=notes)
    if not compilations:
        return joined
    return _with_streams(replace(joined, compilations=(*compilations, *joined.compilations)))


def _joined(processes: Sequence[Record]) -> Record:
    """A candidate that fails in any process has failed; parity and failure are those of that process."""
    first, planned = processes[0], processes[0].job.protocol.processes
    notes = dict.fromkeys(note for record in processes for note in record.notes)
    judged_by = first
    for number, record in enumerate(processes[1:], start=2):
        why = why_not(first, record)
        if why is not None:
            status = record.status if record.samples is None else Status.OOM  # a batch was halved
            place = f"process {number}" if planned == AUTO else f"process {number} of {planned}"
            failure = replace(why, message=f"in {place}: {why.message}")
            notes_of_both = (*first.notes, *record.notes)
            lost = replace(first, status=status, failure=failure, samples=None, notes=notes_of_both)
            return replace(lost, ended=record.ended)
        if judged_by.status.passed and not record.status.passed:
            judged_by = record
            notes[f"{record.status.value} in process {number} of {len(processes)}"] = None
    agreements = [record.env_parity for record in processes if record.env_parity is not None]
    return replace(
        first,
        status=judged_by.status,
        parity=judged_by.parity,
        failure=judged_by.failure,
        env_parity=next((parity for parity in agreements if parity.failed), first.env_parity),
        compilations=tuple(later for record in processes[1:] for later in _as_found(record)),
        samples=joined_samples([record.samples for record in processes if record.samples is not None]),
        notes=tuple(notes),
        ended=processes[-1].ended,
        rounds_ended=STOPPED if processes[-1].rounds_ended == STOPPED else first.rounds_ended,
    )


def why_not(first: Record, later: Record) -> Failure | None:
    """Why the later process's samples cannot be combined with the first's; None if they can."""
    if later.samples is None:
        return later.failure or Failure(kind="NoSamples", message="no samples", phase="measure")
    batches = [None if r.model is None else r.model.batch_size for r in (first, later)]
    if batches[0] != batches[1]:
        message = f"batch {batches[1]}, but batch {batches[0]} in the first process: the steps differ"
        return Failure(kind="OtherBatch", message=message, phase="measure")
    return None


def joined_samples(parts: Sequence[Samples]) -> Samples:
    """The samples of several processes, one after the other. A part may itself have several."""
    columns: dict[str, Any] = {
        name: tuple(value for part in parts for value in getattr(part, name)) for name in _columns(parts[0])
    }
    columns["rounds_by_process"] = tuple(count for part in parts for count in part.rounds_of_each)
    return replace(parts[0], **columns)


def _columns(samples: Samples) -> list[str]:
    return [field.name for field in fields(Samples) if isinstance(getattr(samples, field.name), tuple)]


def _as_found(later: Record) -> Iterator[Compilation]:
    """What compiling took in a later process, with the caches as it found them."""
    numbers = {name: later.metrics[name] for name in of_compiling() if name in later.metrics}
    if numbers:
        yield Compilation(start=AS_FOUND, round=later.process, metrics=numbers, status=later.status)


def compilation_of(record: Record, checked: Record | None = None) -> Compilation:
    """``checked``: the process that checked the parity of the same start."""
    outcome = record if checked is None or record.failure is not None else checked
    failure = outcome.failure
    worst = outcome.parity.worst if outcome.parity is not None else None
    why = "" if failure is None else ": ".join(filter(None, (failure.kind, failure.message)))
    if outcome.status is Status.FAIL_ACCURACY and worst is not None:
        why = f"{worst.name}: {worst.failure}"
    return Compilation(
        start=record.start,
        round=record.round,
        metrics=record.metrics,
        status=outcome.status,
        failure=why,
        first_calls_s=record.first_calls_s if record.experiment != "compile_runs" else (),
        stored_bytes=record.stored_bytes,
    )


def _with_streams(record: Record) -> Record:
    """A candidate has failed if any size of its streams has failed parity."""
    wrong = next(
        (c for c in record.compilations if c.start == SIZES and c.status is Status.FAIL_ACCURACY), None
    )
    if wrong is None or not record.status.passed:
        return record
    message = f"of --shapes, {wrong.failure}"
    failure = Failure(kind="AnotherSize", message=message, phase="check")
    return replace(record, status=Status.FAIL_ACCURACY, failure=failure, notes=(*record.notes, message))


# -- records of before format 3 ---------------------------------------------------------------------------


def flat(old: Record) -> Iterator[Record]:
    """The processes of a record that holds several, as records of their own."""
    samples = old.samples
    parts = [samples] if samples is None or len(samples.rounds_by_process) < 2 else [*_parts(samples)]
    later_ones = {c.round: c for c in old.compilations if c.start == AS_FOUND}
    yield replace(old, samples=parts[0], compilations=())
    for number, part in enumerate(parts[1:], start=1):
        later = later_ones.get(number)
        yield Record(
            job=old.job,
            candidate=old.candidate,
            env=old.env,
            process=number,
            samples=part,
            model=old.model,
            status=later.status if later is not None else old.status,
            metrics=later.metrics if later is not None else {},
            ended=old.ended,
        )
    for begun in old.compilations:
        if begun.start != AS_FOUND:
            yield Record(
                job=old.job,
                candidate=old.candidate,
                env=old.env,
                experiment=_experiment(begun),
                start=begun.start,
                round=begun.round,
                status=begun.status,
                metrics=begun.metrics,
                failure=Failure(kind="", message=begun.failure, phase="compile") if begun.failure else None,
                first_calls_s=begun.first_calls_s,
                stored_bytes=begun.stored_bytes,
            )


def _experiment(begun: Compilation) -> str:
    if begun.start == SIZES:
        return "shapes"
    return "start_up" if begun.first_calls_s or begun.stored_bytes is not None else "compile_runs"


def _parts(samples: Samples) -> Iterator[Samples]:
    ends = [0, *accumulate(samples.rounds_by_process)]
    for begin, end in pairwise(ends):
        columns = {name: getattr(samples, name)[begin:end] for name in _columns(samples)}
        yield replace(samples, **{**columns, "rounds_by_process": ()})
