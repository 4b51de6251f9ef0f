"""Several fresh processes of a job: ``--processes``; beside the timed: ``--compile-runs``, ``--start-up``.

Memory layout, an autotuner's choice of kernels and the order of hashes are constant within a process.
More rounds in one process cannot show how much they change the times.

A round of ``--compile-runs`` compiles every candidate once from empty caches, one after another in a random
order, then every candidate again from the caches that its cold compilation has filled. So candidates, and
environments, meet the same state of the machine, and a round makes pairs. What it stores is deleted after it.
The process that is timed uses the user's own caches: torch's keys hold its version, the graph and options.

A round of ``--start-up`` also has eager, and further processes that begin with what the cold one has stored:
torch's portable cache file, and an AOTInductor package. In the first round, each of these starts is repeated
in a process that checks the parity of what was loaded.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from harness.metrics import of_compiling
from harness.protocol import AUTO, CACHES, LIBRARY
from harness.schema import (
    AS_FOUND,
    CACHE_FILE,
    COLD,
    EAGER_START,
    PACKAGE,
    SIZES,
    STOPPED,
    WARM,
    Compilation,
    Failure,
    Job,
    Protocol,
    Record,
    Samples,
    Status,
    of_environment,
)
from harness.timing.measure import round_order
from runner.analysis.verdicts.between import LEAST_ACROSS
from runner.analysis.verdicts.decision import Between, judged
from runner.analysis.verdicts.family import assumed_of
from runner.engine import Pause
from runner.engine.executors import Stop
from runner.engine.stopping import more_processes
from runner.plan.environments.spec import EAGER, split_candidate
from runner.store.record_file import append_record, read_records
from runner.store.run_folder import source_of

Steps = Iterator[Record | Pause]
Measure = Callable[[Job, tuple[str, ...]], Iterator[Record]]
"""Measures these candidates of a job in a fresh process."""

PROCESS_FILES = "process-*.jsonl"
"""In the job's folder, until the run ends: the records of each process, with which a resumed run goes on."""


def with_processes(
    job: Job, candidates: tuple[str, ...], measure: Measure, stop: Stop, folder: Path
) -> Steps:
    """The job's records, each with the samples of ``job.protocol.processes`` processes, with pauses between.

    Those of processes that have ended are kept in ``folder``, and not measured again.
    Every process checks parity, with its late check; metrics are those of the first. Compilations of later
    processes, which share the compile caches unless every worker has its own, are kept. A candidate that
    fails in any process has failed. With ``auto``, processes are added for the candidates whose open verdict
    they can close.
    """
    several = job.protocol.performance and job.protocol.processes != 1
    kept = _kept(measure, folder)
    yield from _several(job, candidates, kept, stop) if several else measure(job, candidates)


def _kept(measure: Measure, folder: Path) -> Measure:
    """Measures only candidates whose record of this process is not in the folder, and puts it there."""

    def measured(job: Job, candidates: tuple[str, ...]) -> Iterator[Record]:
        path = folder / PROCESS_FILES.replace("*", str(job.protocol.process + 1))
        if path.exists() and _is_older(path, source_of(job.case.suite)):
            path.unlink()  # of the model before its file was edited
        records = read_records(path).records if path.exists() else ()
        yield from (record for record in records if record.candidate in candidates)
        left = tuple(name for name in candidates if name not in {record.candidate for record in records})
        for record in measure(job, left) if left else ():
            if record.rounds_ended != STOPPED:
                folder.mkdir(parents=True, exist_ok=True)  # a model may have removed it
                append_record(path, record)
            yield record

    return measured


def _is_older(path: Path, source: Path) -> bool:
    """Whether this file is older than the user's source file."""
    return source.suffix == ".py" and source.exists() and path.stat().st_mtime < source.stat().st_mtime


def _several(job: Job, candidates: tuple[str, ...], measure: Measure, stop: Stop) -> Steps:
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
    for name, records in going.items():
        yield _joined(records, job.protocol.processes, stopped=name in wanting)


def _another(protocol: Protocol, records: Sequence[Record]) -> bool:
    if protocol.processes != AUTO:
        return len(records) < protocol.processes
    if records[0].job.environments and len(records) < LEAST_ACROSS:
        return True  # fewer decide nothing between environments
    if not all(record.status.passed for record in records):
        return False  # without parity there is no verdict to close
    samples = joined_samples([record.samples for record in records if record.samples is not None])
    by_process = samples.rounds_by_process if len(records) > 1 else ()
    between = Between(assumed_sd=assumed_of(records[0]))
    estimate = judged(samples.baseline_s, samples.candidate_s, by_process, between)
    return more_processes(protocol, estimate)


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
    status = later.status if later.samples is None else Status.OOM  # a batch was halved
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


def _joined(records: Sequence[Record], processes: int, *, stopped: bool) -> Record:
    """One record. If a later process failed, status, parity and failure are those of that process."""
    samples = [record.samples for record in records if record.samples is not None]
    notes = dict.fromkeys(note for record in records for note in record.notes)
    if stopped:
        planned = "the processes that its verdict needs" if processes == AUTO else f"{processes} processes"
        notes[f"stopped after {len(records)} of {planned}"] = None
    cut_short = stopped or records[-1].rounds_ended == STOPPED
    judged_by = records[0]
    for number, record in enumerate(records[1:], start=2):
        if judged_by.status.passed and not record.status.passed:
            judged_by = record
            notes[f"{record.status.value} in process {number} of {len(records)}"] = None
    return replace(
        records[0],
        status=judged_by.status,
        parity=judged_by.parity,
        env_parity=next((p for r in records if (p := r.env_parity) and p.failed), records[0].env_parity),
        failure=judged_by.failure,
        compilations=_of_later(records[1:]),
        samples=joined_samples(samples) if len(samples) > 1 or processes != AUTO else samples[0],
        notes=tuple(notes),
        ended=records[-1].ended,
        rounds_ended=STOPPED if cut_short else records[0].rounds_ended,
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
    """The samples of several processes, one after the other. A part may itself have several."""
    columns: dict[str, Any] = {
        field.name: tuple(value for part in parts for value in getattr(part, field.name))
        for field in fields(Samples)
        if isinstance(getattr(parts[0], field.name), tuple)
    }
    columns["rounds_by_process"] = tuple(count for part in parts for count in part.rounds_of_each)
    return replace(parts[0], **columns)


# -- compilations beside the one of the timed process ---------------------------------

Run = Callable[[Job, Path | None], Steps]
"""Measures a job with workers whose compile caches are in this folder; None: the user's own."""

Compilations = dict[str, tuple[Compilation, ...]]

COMPILED = (COLD, WARM)
RACED = (EAGER_START, *COMPILED, CACHE_FILE, PACKAGE)
STREAMED = (EAGER_START, SIZES)
"""The starts of ``--compile-runs``, ``--start-up`` and ``--shapes``, in order."""


NEEDS = {WARM: "caches", CACHE_FILE: f"stored/{CACHES}", PACKAGE: f"stored/{LIBRARY}"}
"""What a start finds among the files of its candidate's cold start; every other start: nothing."""


def with_fresh_runs(job: Job, candidates: Sequence[str], run: Run, folder: Path, stop: Stop) -> Steps:
    """The records of these candidates, with the requested compilations, whose files are in ``folder``."""
    compilations: Compilations = {}
    if job.extras.times_compiling:
        for left in folder.glob("caches-*"):  # by a run that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="caches-", dir=folder, ignore_cleanup_errors=True) as root:
            compilations = fresh_runs(job, candidates, run, Path(root), stop)
    for step in run(job, None):
        if isinstance(step, Record):
            own = compilations.get(step.candidate, ())
            yield _with_streams(replace(step, compilations=(*own, *step.compilations)))
        else:
            yield step


def fresh_runs(job: Job, candidates: Sequence[str], run: Run, folder: Path, stop: Stop) -> Compilations:
    """The compilations of these candidates. A start of a candidate that fails once is not repeated."""
    able = [name for name in candidates if _has_compiler(job, name)]
    compilations: Compilations = dict.fromkeys(able, ())
    streams = (job.protocol.processes or LEAST_ACROSS) if job.extras.shapes else 0
    for alike, rounds, starts in (
        (job, job.extras.compile_runs, COMPILED),
        (job, job.extras.start_up, RACED),
        (replace(job, protocol=replace(job.protocol, fixed_batch=True)), streams, STREAMED),
    ):
        for name, compilation in _rounds(alike, able, rounds, run, folder, stop, starts):
            for candidate in able:
                if name == candidate or name == _eager_of(job, candidate):
                    compilations[candidate] += (compilation,)
    return compilations


def _rounds(
    job: Job,
    candidates: Sequence[str],
    rounds: int,
    run: Run,
    folder: Path,
    stop: Stop,
    starts: Sequence[str],
) -> Iterator[tuple[str, Compilation]]:
    races = EAGER_START in starts
    eager = dict.fromkeys(_eager_of(job, candidate) for candidate in candidates) if races else {}
    names = (*eager, *candidates)
    ended: set[tuple[str, str]] = set()
    for number in range(rounds if candidates else 0):
        order = round_order(names, job.protocol, number)
        for start, (place, name) in product(starts, enumerate(order)):
            own = folder / str(place)
            if (
                (start == EAGER_START) != (name in eager)
                or (start in NEEDS and not (own / NEEDS[start]).exists())
                or ended & {(name, start), (name, COLD)}
            ):
                continue
            if stop():
                return
            compilation = _begun(job, name, start, number, own, run, races=races)
            if compilation is None:
                continue  # ``stop()`` became true, or an interrupted run has its record
            if compilation.failure:
                ended.add((name, start))
            yield name, compilation
        for stored in folder.iterdir():
            shutil.rmtree(stored, ignore_errors=True)


def _begun(
    job: Job, name: str, start: str, number: int, folder: Path, run: Run, *, races: bool
) -> Compilation | None:
    size = bytes_of(folder / NEEDS[start]) if races and start in NEEDS else None

    def record_of(what: str, *, accuracy: bool) -> Record | None:
        own = NEEDS[WARM] if start in (COLD, WARM) else f"{what}-{start.replace(' ', '-')}"
        caches, stored = folder / own, folder / "stored"
        for path in (caches, stored):
            path.mkdir(parents=True, exist_ok=True)
        alone = _only(job, name, start if races else "", stored, accuracy=accuracy)
        return next((r for r in run(alone, caches) if isinstance(r, Record)), None)

    record = record_of("of", accuracy=start == SIZES and job.protocol.accuracy)
    if record is None:
        return None
    compilation = Compilation(
        start=start,
        round=number,
        metrics=record.metrics,
        first_calls_s=record.first_calls_s if races else (),
        stored_bytes=size,
    )
    compilation = _with_outcome(compilation, record)
    if size is None or number or compilation.failure or not job.protocol.accuracy:
        return compilation
    checked = record_of("checking", accuracy=True)
    return compilation if checked is None else _with_outcome(compilation, checked)


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


def _with_outcome(compilation: Compilation, record: Record) -> Compilation:
    """With the status of the process that this record is of, and why it failed."""
    failure = record.failure
    worst = record.parity.worst if record.parity is not None else None
    why = f"{failure.kind}: {failure.message}" if failure is not None else ""
    if record.status is Status.FAIL_ACCURACY and worst is not None:
        why = f"{worst.name}: {worst.failure}"
    return replace(compilation, status=record.status, failure=why)


def bytes_of(path: Path) -> int:
    """The size of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _has_compiler(job: Job, candidate: str) -> bool:
    compiler = split_candidate(job, candidate)[0] if job.environments else candidate
    return compiler != EAGER and candidate not in job.unavailable and not job.case.skip


def _eager_of(job: Job, candidate: str) -> str:
    return of_environment(EAGER, split_candidate(job, candidate)[1].name) if job.environments else EAGER


def _only(job: Job, candidate: str, start: str, stored: Path, *, accuracy: bool) -> Job:
    """The job that only compiles this candidate, in its own environment."""
    own = (split_candidate(job, candidate)[1],) if job.environments else ()
    kept = str(stored) if start else ""
    protocol = replace(job.protocol, accuracy=accuracy, performance=False, start=start, stored=kept)
    return replace(job, candidates=(candidate,), environments=own, protocol=protocol)
