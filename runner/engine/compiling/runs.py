"""Processes beside the timed one, each fresh: ``--compile-runs K`` and ``--start-up K``.

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
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from harness.protocol import CACHES, LIBRARY
from harness.schema import (
    CACHE_FILE,
    COLD,
    EAGER_START,
    PACKAGE,
    WARM,
    Compilation,
    Job,
    Record,
    Status,
    of_environment,
)
from harness.timing.measure import round_order
from runner.engine import Pause
from runner.plan.environments.plan import EAGER, split_candidate

Steps = Iterator[Record | Pause]
Run = Callable[[Job, Path | None], Steps]
"""Measures a job with workers whose compile caches are in this folder; None: the user's own."""

Compilations = dict[str, tuple[Compilation, ...]]

STARTS = (EAGER_START, COLD, WARM, CACHE_FILE, PACKAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begins:
    """What the processes of a candidate find in a round."""

    caches: Path  # of its cold start
    stored: Path  # files that its cold start wrote

    def file(self, start: str) -> Path | None:
        """What this start needs; None: nothing."""
        files = {WARM: self.caches, CACHE_FILE: self.stored / CACHES, PACKAGE: self.stored / LIBRARY}
        return files.get(start)


def with_fresh_runs(
    job: Job, candidates: Sequence[str], run: Run, folder: Path, stop: Callable[[], bool]
) -> Steps:
    """The records of these candidates, with the requested compilations, whose files are in ``folder``."""
    compilations: Compilations = {}
    if job.extras.times_compiling:
        with tempfile.TemporaryDirectory(prefix="caches-", dir=folder, ignore_cleanup_errors=True) as root:
            compilations = fresh_runs(job, candidates, run, Path(root), stop)
    for step in run(job, None):
        if isinstance(step, Record):
            own = compilations.get(step.candidate, ())
            yield replace(step, compilations=(*own, *step.compilations))
        else:
            yield step


def fresh_runs(
    job: Job, candidates: Sequence[str], run: Run, folder: Path, stop: Callable[[], bool]
) -> Compilations:
    """The compilations of these candidates. A start of a candidate that fails once is not repeated."""
    able = [name for name in candidates if _has_compiler(job, name)]
    found: Compilations = dict.fromkeys(able, ())
    for rounds, races in ((job.extras.compile_runs, False), (job.extras.start_up, True)):
        for name, compilation in _rounds(job, able, rounds, run, folder, stop, races=races):
            for candidate in able:
                if name == candidate or name == _eager_of(job, candidate):
                    found[candidate] += (compilation,)
    return found


def _rounds(
    job: Job,
    candidates: Sequence[str],
    rounds: int,
    run: Run,
    folder: Path,
    stop: Callable[[], bool],
    *,
    races: bool,
) -> Iterator[tuple[str, Compilation]]:
    eager = dict.fromkeys(_eager_of(job, candidate) for candidate in candidates) if races else {}
    names = (*eager, *candidates)
    ended: set[tuple[str, str]] = set()
    for number in range(rounds if candidates else 0):
        order = round_order(names, job.protocol, number)
        for start, (place, name) in product(STARTS, enumerate(order)):
            begins = Begins(caches=folder / f"{place}-caches", stored=folder / f"{place}-stored")
            needed = begins.file(start)
            if (
                (start == EAGER_START) != (name in eager)
                or (start in (CACHE_FILE, PACKAGE) and not races)
                or (needed is not None and not needed.exists())
                or ended & {(name, start), (name, COLD)}
            ):
                continue
            if stop():
                return
            compilation = _begun(job, name, start, number, begins, run, races=races)
            if compilation is None:
                continue  # ``stop()`` became true, or an interrupted run has its record
            if compilation.failure:
                ended.add((name, start))
            yield name, compilation
        for stored in folder.iterdir():
            shutil.rmtree(stored, ignore_errors=True)


def _begun(
    job: Job, name: str, start: str, number: int, begins: Begins, run: Run, *, races: bool
) -> Compilation | None:
    needed = begins.file(start)
    size = bytes_of(needed) if races and needed is not None else None

    def record_of(what: str, *, accuracy: bool) -> Record | None:
        caches = begins.caches if start in (COLD, WARM) else begins.caches.with_name(what)
        for path in (caches, begins.stored):
            path.mkdir(exist_ok=True)
        alone = _alone(job, name, start if races else "", begins.stored, accuracy=accuracy)
        return next((r for r in run(alone, caches) if isinstance(r, Record)), None)

    record = record_of(f"{begins.caches.name}-of-{STARTS.index(start)}", accuracy=False)
    if record is None:
        return None
    compilation = Compilation(
        start=start,
        round=number,
        metrics=record.metrics,
        status=record.status,
        failure="" if record.failure is None else f"{record.failure.kind}: {record.failure.message}",
        first_calls_s=record.first_calls_s if races else (),
        stored_bytes=size,
    )
    if size is None or number or compilation.failure or not job.protocol.accuracy:
        return compilation
    checked = record_of(f"{begins.caches.name}-checking-{STARTS.index(start)}", accuracy=True)
    return compilation if checked is None else _with_parity(compilation, checked)


def _with_parity(compilation: Compilation, checked: Record) -> Compilation:
    failure = checked.failure
    worst = checked.parity.worst if checked.parity is not None else None
    why = f"{failure.kind}: {failure.message}" if failure is not None else ""
    if checked.status is Status.FAIL_ACCURACY and worst is not None:
        why = f"{worst.name}: {worst.failure}"
    return replace(compilation, status=checked.status, failure=why)


def bytes_of(path: Path) -> int:
    """The size of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _has_compiler(job: Job, candidate: str) -> bool:
    compiler = split_candidate(job, candidate)[0] if job.environments else candidate
    return compiler != EAGER and candidate not in job.unavailable and not job.case.skip


def _eager_of(job: Job, candidate: str) -> str:
    """Eager of the candidate's environment."""
    return of_environment(EAGER, split_candidate(job, candidate)[1].name) if job.environments else EAGER


def _alone(job: Job, candidate: str, start: str, stored: Path, *, accuracy: bool) -> Job:
    """The job that only compiles this candidate, in its own environment."""
    own = (split_candidate(job, candidate)[1],) if job.environments else ()
    protocol = replace(
        job.protocol, accuracy=accuracy, performance=False, start=start, stored=str(stored) if start else ""
    )
    return replace(job, candidates=(candidate,), environments=own, protocol=protocol)
