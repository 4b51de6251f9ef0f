"""What a job measures next: policies over the records so far. Nothing but ``next_attempt`` starts a process.

Memory layout, an autotuner's choice of kernels and the order of hashes are constant within a process. More
rounds in one process cannot show how much they change the times, so further processes pursue verdicts.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from itertools import product
from operator import attrgetter
from pathlib import Path

from harness.protocol import AUTO, CACHES, LIBRARY
from harness.schema import (
    CACHE_FILE,
    COLD,
    EAGER_START,
    PACKAGE,
    SIZES,
    STOPPED,
    WARM,
    Failure,
    Job,
    Record,
    Status,
    eager_of,
)
from harness.timing.measure import round_order
from runner.analysis.verdicts.between import LEAST_ACROSS, assumed_of
from runner.analysis.verdicts.decision import judged
from runner.engine.job_session import now
from runner.engine.stopping import left_to_close, more_processes
from runner.plan.environments.spec import EAGER, split_candidate
from runner.store.joined import CHECKED, Key, compilation_of, joined_samples, key_of, why_not

Measure = Callable[[Job, tuple[str, ...], Path | None], Iterator[Record]]
"""Measures these candidates of a job in a fresh process, whose compile caches are in this folder.

None: the user's own caches.
"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The next processes of a job: one that times ``candidates``, or a round of an experiment.

    ``cost_s``: the seconds that it, and those after it, will probably take until the verdicts are closed.
    ``folders``: environment variables of its workers, and the folder in the job's that each names, at first
    empty. ``note``: a sentence for who waits. ``confirms``: the gates whose cases it measures again.
    """

    job: Job
    candidates: tuple[str, ...]
    _: KW_ONLY
    process: int = 0
    experiment: str = ""
    round: int = 0
    confirms: str = ""
    cost_s: float = field(default=0.0, compare=False)
    folders: Mapping[str, str] = field(default_factory=dict, compare=False)
    note: str = field(default="", compare=False)

    @property
    def is_first(self) -> bool:
        return not self.process and not self.experiment

    def lost(self, candidate: str, failure: Failure, reproduce: str) -> Record:
        """Of a candidate that an error of this program, or of the cluster, left without a record."""
        return Record(
            job=self.job,
            candidate=candidate,
            status=Status.INFRA_ERROR,
            process=self.process,
            experiment=self.experiment,
            start=COLD if self.experiment in STARTS else "",
            round=self.round,
            failure=failure,
            reproduce=reproduce,
            ended=now(),
        )


Policy = Callable[[Job, Sequence[Record]], Attempt | None]


def next_attempt(job: Job, records: Sequence[Record]) -> Attempt | None:
    """What the job measures next; None: it has everything. ``records``: those of its processes so far."""
    kept = [record for record in records if record.rounds_ended != STOPPED]
    policies: tuple[Policy, ...] = (first_process, *EXPERIMENTS.values(), further_process)
    return next((attempt for policy in policies if (attempt := policy(job, kept)) is not None), None)


def attempts(policy: Policy, job: Job, records: Sequence[Record]) -> Iterator[Attempt]:
    """One after the other, while ``records`` grows. An attempt that changes nothing is not repeated."""
    before = None
    while (attempt := policy(job, records)) is not None and attempt != before:
        yield attempt
        before = attempt


# -- timed processes: --processes -------------------------------------------------------------------------


def first_process(job: Job, records: Sequence[Record]) -> Attempt | None:
    done = {record.candidate for record in records if not record.experiment}
    left = tuple(candidate for candidate in job.candidates if candidate not in done)
    return Attempt(job, left) if left else None


def further_process(job: Job, records: Sequence[Record]) -> Attempt | None:
    """Of the candidates whose verdict a further process may close, those with the fewest processes."""
    if not job.protocol.performance or job.protocol.processes == 1:
        return None
    timed: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.process):
        if not (record.experiment or record.confirms):
            timed.setdefault(record.candidate, []).append(record)
    process_s = _process_s([own[-1] for own in timed.values()])
    costs = {name: cost for name, own in timed.items() if (cost := _cost_s(own, process_s)) is not None}
    if not costs:
        return None
    fewest = min(len(timed[name]) for name in costs)
    candidates = tuple(name for name in job.candidates if name in costs and len(timed[name]) == fewest)
    return Attempt(job, candidates, process=fewest, cost_s=max(costs[name] for name in candidates))


def _cost_s(own: Sequence[Record], each_s: float) -> float | None:
    """The seconds until the verdict of a candidate is closed, or its processes are done; None: it is."""
    first, protocol = own[0], own[0].job.protocol
    if any(why_not(first, record) is not None for record in own):
        return None
    if protocol.processes != AUTO:
        left = protocol.processes - len(own)
        return left * each_s if left > 0 else None
    if first.job.environments and len(own) < LEAST_ACROSS:
        return (LEAST_ACROSS - len(own)) * each_s  # fewer decide nothing between environments
    if not all(record.status.passed for record in own):
        return None  # without parity there is no verdict to close
    samples = joined_samples([record.samples for record in own if record.samples is not None])
    by_process = samples.rounds_by_process if len(own) > 1 else ()
    estimate = judged(samples.baseline_s, samples.candidate_s, by_process, assumed_of(first))
    return (left_to_close(protocol, estimate) or 1) * each_s if more_processes(protocol, estimate) else None


def _process_s(records: Sequence[Record]) -> float:
    """The seconds of one more process of these candidates: as of their latest, but for cold compilations."""
    number = max((record.process for record in records), default=0)
    latest = [record for record in records if record.process == number and record.started and record.ended]
    if not latest:
        return 0.0
    began = min(datetime.fromisoformat(record.started) for record in latest)
    ended = max(datetime.fromisoformat(record.ended) for record in latest)
    compiling_s = sum(float(record.metrics.get("compilation_latency_s") or 0.0) for record in latest)
    return max(0.0, (ended - began).total_seconds() - (0.0 if number else compiling_s))


# -- rounds of fresh processes: --compile-runs, --start-up, --shapes --------------------------------------

COMPILED = (COLD, WARM)
RACED = (EAGER_START, *COMPILED, CACHE_FILE, PACKAGE)
STREAMED = (EAGER_START, SIZES)
STARTS: Mapping[str, tuple[str, ...]] = {"compile_runs": COMPILED, "start_up": RACED, "shapes": STREAMED}
"""The starts of a round of each experiment, in order."""

NEEDS = {WARM: "caches", CACHE_FILE: f"stored/{CACHES}", PACKAGE: f"stored/{LIBRARY}"}
"""What a start finds among the files of its candidate's cold start; every other start: nothing."""


def _rounds(experiment: str, rounds: Callable[[Job], int]) -> Policy:
    def policy(job: Job, records: Sequence[Record]) -> Attempt | None:
        able = tuple(name for name in job.candidates if _has_compiler(job, name))
        own = [record for record in records if record.experiment in (experiment, CHECKED)]
        ended = {record.round for record in own if record.status is Status.INFRA_ERROR}
        for number in range(rounds(job) if able else 0):
            if number in ended:  # by an error of this program: in this run it is not tried again
                continue
            done = {key_of(record) for record in own if record.round == number}
            if not done.issuperset(_expected(job, able, experiment, number, own)):
                return Attempt(job, able, experiment=experiment, round=number)
        return None

    return policy


def _expected(
    job: Job, able: Sequence[str], experiment: str, number: int, own: Sequence[Record]
) -> Iterator[Key]:
    """The records of a round, as far as they are known, without those of starts that have failed."""
    starts, failed = STARTS[experiment], _failed(own)
    names = {EAGER_START: [_eager_of(job, name) for name in able], COLD: able, SIZES: able}
    begun = [(name, start, False) for start in starts for name in names.get(start, ())]
    for cold in own:
        if (cold.start, cold.round) == (COLD, number):
            checks = EAGER_START in starts and not number and job.protocol.accuracy
            begun += [(cold.candidate, start, checks) for start in cold.stored]
    for name, start, checks in begun:
        if failed.isdisjoint({(name, start), (name, COLD)}):
            yield job.key, name, experiment, start, number, 0
            if checks:
                yield job.key, name, CHECKED, start, number, 0


def _failed(own: Sequence[Record]) -> set[tuple[str, str]]:
    """The starts that are not repeated: (candidate, start)."""
    return {(record.candidate, record.start) for record in own if compilation_of(record).failure}


EXPERIMENTS: Mapping[str, Policy] = {
    "compile_runs": _rounds("compile_runs", lambda job: job.extras.compile_runs),
    "start_up": _rounds("start_up", lambda job: job.extras.start_up),
    "shapes": _rounds(
        "shapes", lambda job: (job.protocol.processes or LEAST_ACROSS) if job.extras.shapes else 0
    ),
}


# -- once more: --confirm ---------------------------------------------------------------------------------

Selected = Mapping[tuple[str, str, str], str]
"""By a job's key, a candidate, and the experiment by which a gate would fail it: the words of these gates."""


def confirming(selected: Selected) -> Policy:
    """As many fresh processes, or rounds of an experiment, as those by which the candidates were selected.

    The number is fixed before the first of them: looking at them would select again.
    """

    def policy(job: Job, records: Sequence[Record]) -> Attempt | None:
        for experiment in ("", *EXPERIMENTS):
            keys = {name: (job.key, name, experiment) for name in job.candidates}
            chosen = {name: selected[key] for name, key in keys.items() if key in selected}
            own = [record for record in records if record.experiment == experiment]
            number_of = attrgetter("round" if experiment else "process")
            before = {number_of(r) for r in own if r.candidate in chosen and not r.confirms}
            again = {number_of(r) for r in own if r.confirms}
            if chosen and len(again) < max(1, len(before)):
                number, gates = max(map(number_of, own), default=-1) + 1, dict.fromkeys(chosen.values())
                attempt = Attempt(job, tuple(chosen), experiment=experiment, confirms=", ".join(gates))
                return replace(attempt, round=number) if experiment else replace(attempt, process=number)
        return None

    return policy


def attempted(
    attempt: Attempt, records: Sequence[Record], measure: Measure, folder: Path
) -> Iterator[Record]:
    """The records of the attempt. ``records``: of the job, so far; ``folder``: the job's."""
    if attempt.experiment not in STARTS:
        caches = "filled" if attempt.process else "as found"
        job = replace(attempt.job, protocol=replace(attempt.job.protocol, process=attempt.process))
        for record in measure(job, attempt.candidates, None):
            yield replace(
                record, job=attempt.job, process=attempt.process, experiment=attempt.experiment, caches=caches
            )
        return
    for left in folder.glob("caches-*"):  # by a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="caches-", dir=folder, ignore_cleanup_errors=True) as root:
        yield from _round(attempt, records, measure, Path(root))


def _round(attempt: Attempt, records: Sequence[Record], measure: Measure, folder: Path) -> Iterator[Record]:
    """A start of a candidate that has failed once is not repeated."""
    job, experiment = attempt.job, attempt.experiment
    starts = STARTS[experiment]
    if experiment == "shapes":
        job = replace(job, protocol=replace(job.protocol, fixed_batch=True))
    races = EAGER_START in starts
    eager = dict.fromkeys(_eager_of(job, candidate) for candidate in attempt.candidates) if races else {}
    order = round_order((*eager, *attempt.candidates), job.protocol, attempt.round)
    own_records = [record for record in records if record.experiment in (experiment, CHECKED)]
    failed = _failed(own_records)
    done = {key_of(record) for record in own_records}  # of a round in which the run was killed
    for start, (place, name) in product(starts, enumerate(order)):
        own = folder / str(place)
        if (
            (start == EAGER_START) != (name in eager)
            or (start in NEEDS and not (own / NEEDS[start]).exists())
            or failed & {(name, start), (name, COLD)}
        ):
            continue
        size = bytes_of(own / NEEDS[start]) if races and start in NEEDS else None
        for what, accuracy in _processes(job, start, attempt.round, size):
            caches, stored = _folders(own, start, what)
            alone = _only(job, name, start if races else "", stored, accuracy=accuracy)
            record = next(measure(alone, (name,), caches), None)
            if record is None:
                return  # ``stop()`` is true
            record = replace(
                record,
                job=attempt.job,
                experiment=what or experiment,
                start=start,
                round=attempt.round,
                caches="filled" if start == WARM else "empty",
                stored_bytes=size,
                stored=tuple(s for s in starts if start == COLD and s in NEEDS and (own / NEEDS[s]).exists()),
            )
            if key_of(record) not in done:
                yield record
            if compilation_of(record).failure:
                failed.add((name, start))
                break


def _processes(job: Job, start: str, number: int, size: int | None) -> Iterator[tuple[str, bool]]:
    """The experiment and whether parity is checked, of each process of a start."""
    yield "", start == SIZES and job.protocol.accuracy
    if size is not None and not number and job.protocol.accuracy:
        yield CHECKED, True


def _folders(own: Path, start: str, what: str) -> tuple[Path, Path]:
    """The compile caches of a start, and what its candidate has stored."""
    name = NEEDS[WARM] if start in COMPILED else f"{what or 'of'}-{start.replace(' ', '-')}"
    folders = own / name, own / "stored"
    for path in folders:
        path.mkdir(parents=True, exist_ok=True)
    return folders


def bytes_of(path: Path) -> int:
    """The size of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _has_compiler(job: Job, candidate: str) -> bool:
    compiler = split_candidate(job, candidate)[0] if job.environments else candidate
    return compiler != EAGER and candidate not in job.unavailable and not job.case.skip


def _eager_of(job: Job, candidate: str) -> str:
    return eager_of(split_candidate(job, candidate)[1].name if job.environments else "")


def _only(job: Job, candidate: str, start: str, stored: Path, *, accuracy: bool) -> Job:
    """The job that only compiles this candidate, in its own environment."""
    own = (split_candidate(job, candidate)[1],) if job.environments else ()
    kept = str(stored) if start else ""
    protocol = replace(job.protocol, accuracy=accuracy, performance=False, start=start, stored=kept)
    extras = replace(job.extras, trajectory=0)
    return replace(job, candidates=(candidate,), environments=own, protocol=protocol, extras=extras)
