"""Joins runs that belong together into a new run. The source runs stay unchanged."""

from __future__ import annotations

import filecmp
import itertools
import os
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.codec import to_json
from harness.devices import PLATFORMS
from harness.schema import EAGER_START, Job, Record
from runner.errors import UsageError
from runner.names import reason
from runner.store.joined import Key, key_of
from runner.store.record_file import Records, stored, whole
from runner.store.run_folder import RUN, THREADS, RunFolder, jobs_in, listed, read_run_json

OWN_FILES = ("job.json", "output.log")  # of a case's folder: these are joined, all others copied
MACHINE_FACTS = ("torch", "torch_git", *PLATFORMS, "cpu", "cpu_count", "cpus_usable", "allocator")
DEVICE_FACTS = ("device_name", "cudnn")
OF_MACHINE = ("cpu", "cpu_count", "cpus_usable", "device_name")  # the same in every environment
Result = tuple[str, str]  # the job's key and the candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A run to join. ``plan``: of the whole run, if this is a part. ``about``: the rest of ``run.json``."""

    folder: Path
    plan: tuple[Job, ...]
    content: Records
    about: dict[str, Any]

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs that are planned or measured."""
        return (*self.plan, *(record.job for record in self.content.records))


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The new run, and sentences. ``lost``: a damaged line can have held a result that it lacks."""

    folder: RunFolder
    missing: str
    damage: tuple[str, ...]
    lost: bool


def merge(paths: Sequence[Path], output_dir: Path | None, command: Sequence[str]) -> Merged:
    """A new run with the results, logs, files and plans of these, so that ``--resume`` measures the rest."""
    sources = _sources(paths, output_dir)
    jobs = _joined_plan(sources)
    records: dict[Result, Record] = {}  # of each the first, whole if any is; other whole ones are identical
    processes: dict[Key, Record] = {}
    origins, done = [], whole(record for source in sources for record in source.content.records)
    for source in sources:
        taken = records.keys() | (done - whole(source.content.records))  # another run has these to their end
        new = {result_of(r): r for r in source.content.records if result_of(r) not in taken}
        results: dict[str, list[str]] = {}
        for key, candidate in new:
            results.setdefault(key, []).append(candidate)
        origins.append({"folder": str(source.folder.resolve()), **source.about, "results": results})
        records |= new
        for record in source.content.processes:
            shared = record.start == EAGER_START and record.job.key in results  # by the job's candidates
            if shared or result_of(record) in new:
                processes.setdefault(key_of(record), record)
    folder = RunFolder.create(output_dir, jobs, command, {"merged_from": origins, **_facts_of_all(sources)})
    try:
        for job in jobs:
            for source in sources:
                _copy_case(source, job, folder)
        places = {job.key: place for place, job in enumerate(jobs)}
        for record in sorted(processes.values(), key=lambda r: places[r.job.key]):
            folder.append(record)
    except OSError as error:
        raise UsageError(
            f"--merge: stopped while writing {folder.path} ({error.strerror}): remove that folder and "
            "merge again; the source runs are unchanged"
        ) from None
    damage = tuple(sentence for source in sources for sentence in source.content.damage)
    missing, finished = "", whole(records.values())
    planned = [(job.key, candidate) for job in jobs for candidate in job.candidates]
    if left := [result for result in planned if result not in finished]:
        what = f"{left[0][1]} of {left[0][0]}{f' and {len(left) - 1} more' if len(left) > 1 else ''}"
        count = f"({len(left)} of {len(planned)} results)"
        missing = f"Planned but finished in none of these runs: {what} {count}; {folder.how_to_go_on()}"
    # without a plan, nothing says what a damaged line held
    lost = any(source.content.damage and (missing or not source.plan) for source in sources)
    return Merged(folder=folder, missing=missing, damage=damage, lost=lost)


def _facts_of_all(sources: Sequence[Source]) -> dict[str, Any]:
    """The tags of any run, and by what torch chose its threads if that is the same in all."""
    tags = list(dict.fromkeys(tag for source in sources for tag in listed(source.about, "tags", str)))
    first, *others = (source.about.get(THREADS) for source in sources)
    threads = first if all(value == first for value in others) else None
    return {name: value for name, value in (("tags", tags), (THREADS, threads)) if value}


def load(path: Path) -> Source:
    """One run on disk: finished, partial, or killed while writing. Raises ``UsageError`` without a run."""
    folder = RunFolder.reopen("--merge", path)
    try:
        content = folder.read()
        about = read_run_json(folder.path) if stored(folder.path / RUN).is_file() else {"jobs": []}
        plan = jobs_in(about, "plan" if about.get("plan") else "jobs")
    except OSError as error:
        raise UsageError(f"--merge: {path} cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise UsageError(
            f"--merge: {path / RUN} is damaged ({reason(error)}); "
            "move this file away to join only the records"
        ) from None
    about = {name: value for name, value in about.items() if name not in ("plan", "jobs")}
    return Source(folder=path, plan=plan, content=content, about=about)


def _sources(paths: Sequence[Path], output_dir: Path | None) -> list[Source]:
    if len(paths) < 2:
        raise UsageError("--merge: one run cannot be merged with itself; name at least two folders")
    resolved = [Path(os.path.realpath(path)) for path in paths]  # ``resolve`` may raise for a link to itself
    for place, given in enumerate(paths):
        if resolved[place] in resolved[:place]:
            raise UsageError(f"--merge: {given} is named twice; name each run once")
    target = Path(os.path.realpath(output_dir or "logs"))
    for path, given in zip(resolved, paths, strict=True):
        if target.is_relative_to(path):
            away = "name a folder outside of the source runs"
            raise UsageError(f"--output-dir: {target} is inside {given}; {away}")
    sources = [load(path) for path in paths]
    for first, second in itertools.combinations(sources, 2):
        if why := _apart(first, second):
            raise UsageError(
                f"--merge: {first.folder} and {second.folder} do not belong together: {why}; "
                "compare the two runs instead of joining them"
            )
    if not any(source.content.records for source in sources):
        raise UsageError("--merge: none of these runs has a record; measure something first")
    return sources


def _joined_plan(sources: Sequence[Source]) -> tuple[Job, ...]:
    """Every planned or measured job once, with the candidates of all runs."""
    jobs: dict[str, Job] = {}
    candidates: dict[str, dict[str, None]] = {}
    for source in sources:
        for job in source.jobs:
            first = jobs.setdefault(job.key, job)
            new = {name: why for name, why in job.unavailable.items() if name not in first.candidates}
            own = {**job.own_compilers, **first.own_compilers}
            jobs[job.key] = replace(first, own_compilers=own, unavailable={**new, **first.unavailable})
            candidates.setdefault(job.key, {}).update(dict.fromkeys(job.candidates))
        for record in source.content.records:
            candidates[record.job.key][record.candidate] = None
    return tuple(replace(job, candidates=tuple(candidates[key])) for key, job in jobs.items())


def _copy_case(source: Source, job: Job, folder: RunFolder) -> None:
    """Appends the run's log of this job to the joined log, and copies its other files."""
    origin = source.folder / "cases" / job.key
    if not origin.is_dir():
        return
    log = folder.open_case(job)
    theirs = origin / "output.log"
    if theirs.is_file():
        words = theirs.read_bytes()
        if words not in log.read_bytes():
            with log.open("ab") as file:
                file.write(f"# from {theirs.resolve()}\n".encode() + words)
                if not words.endswith(b"\n"):
                    file.write(b"\n")
    for path in sorted(origin.rglob("*")):
        name = path.relative_to(origin)
        if path.is_file() and not path.is_symlink() and str(name) not in OWN_FILES:
            _copy_beside(path, log.parent / name)


def _copy_beside(path: Path, wanted: Path) -> None:
    """Copies a file. If the name is taken, the copy gets the next free name."""
    target, number = wanted, 1
    while target.exists():
        if filecmp.cmp(path, target, shallow=False):
            return
        target = wanted.with_name(f"{wanted.stem}-{(number := number + 1)}{wanted.suffix}")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


# -- what runs must have in common ------------------------------------------------


def _apart(left: Source, right: Source) -> str:
    """The first difference that forbids joining these runs; "" if there is none."""
    here, there = map(_facts, (left, right))
    for name in here:
        if here[name] != there.get(name, here[name]):
            first, second = (" and ".join(sorted(facts[name])) for facts in (here, there))
            return f"{name} is {first} in the first and {second} in the second"
    results = {result_of(record): record for record in left.content.records}
    in_both = whole(left.content.records) & whole(right.content.records)
    for record in right.content.records:
        if result_of(record) in in_both and to_json(same := results[result_of(record)]) != to_json(record):
            both = f"both measured {record.candidate} of {record.job.key}, with other values"
            return f"{both}: {_outcome(same)} in the first, {_outcome(record)} in the second"
    return ""


def _facts(source: Source) -> Mapping[str, set[str]]:
    """Displayed name and values of all facts that must be equal if two runs both have them."""
    named = defaultdict[str, set[str]](set)
    for record in source.content.records:
        facts, job = record.environment, record.job
        where = f" of environment {record.env}" if record.env else ""
        for name in (*MACHINE_FACTS, *DEVICE_FACTS):
            if name in facts:
                device = f" of {job.device}" if name in DEVICE_FACTS else ""
                named[f"{name}{device}{'' if name in OF_MACHINE else where}"].add(str(facts[name]))
        if "python" in facts:
            named[f"python{where}"].add(".".join(str(facts["python"]).split(".")[:2]))
        if "threads" in facts and job.protocol.threads is None:
            named[f"threads{where}"].add(str(facts["threads"]))
    for job in source.jobs:
        suite = Path(job.case.suite).name
        named[f"the file of suite {suite}"].add(job.case.suite)  # a part of the names of the suite's jobs
        for name, value in to_json(job.protocol).items():
            named[" ".join((f"{name} in the protocol of suite {suite}", *job.case.point))].add(str(value))
        # older runs do not have the number of parameters
        for name, value in to_json(replace(job.case, parameters=None)).items():
            named[f"{name} of {job.key}"].add(str(value))
    return named


def result_of(record: Record) -> Result:
    return record.job.key, record.candidate


def _outcome(record: Record) -> str:
    rounds = 0 if record.samples is None else len(record.samples)
    return f"{record.status.value} with {rounds} rounds, ended {record.ended or 'at no known time'}"
