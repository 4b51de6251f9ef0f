"""The sides of a comparison, from files: results with the conditions that identify them, and their pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from harness.devices import PLATFORMS, type_of
from harness.schema import AS_FOUND, COLD, WARM, Job, Record, Status, of_environment
from harness.settings import identity
from runner.analysis.derive import compare
from runner.analysis.results import CONTROL, PairedEstimate, Result
from runner.analysis.verdicts.compiling import by_round
from runner.errors import UsageError
from runner.names import compiler_label, counted, merged_facts, plain, ran_batch, reason, suite_labels
from runner.store.record_file import ENDING, stored, whole
from runner.store.run_folder import RECORDS, RUN, jobs_in, read_run, read_run_json

WHAT = "give the folder of a run, or its records.jsonl"
AT = "@"  # RUN@ENVIRONMENT: one environment of a run with --envs
NO_RECORD = "no record"  # the status of a planned result: the run ended before it
NAMED_FIRST = ("suite", "mode", "device", "precision", "compiler")
TIMING_FACTS = ("device_name", "cpu", "cpus_usable", "threads")
SHOWN_FACTS = ("torch", *PLATFORMS, "cudnn", "driver", "triton", "python", *TIMING_FACTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One model with one compiler in one run, or in several ``runs`` of a base."""

    comparison: Result
    conditions: dict[str, str]  # two results with equal conditions are the same measurement
    missing: bool = False  # it was planned and has no record
    shares: tuple[str, str] | None = None  # of an environment, folder and job: two sides share their rounds
    runs: tuple[Member, ...] = ()

    @property
    def record(self) -> Record:
        return self.comparison.record

    @property
    def key(self) -> tuple[object, ...]:
        return self.name, *self.conditions.items()

    @property
    def name(self) -> str:
        return plain(self.record.job.case.name)

    @property
    def compiler(self) -> str:
        return self.conditions["compiler"]

    @property
    def is_control(self) -> bool:
        """Eager against itself; not eager of another environment, whose baseline is the reference's eager."""
        job = self.record.job
        if job.environments:
            return self.record.candidate == of_environment(CONTROL, job.environments[0].name)
        return compiler_label(self.record) == CONTROL

    @property
    def machine(self) -> dict[str, str]:
        """The facts that must also be equal for a comparison of times."""
        facts = facts_of(self.record.environment, TIMING_FACTS)
        allocator = self.record.job.extras.allocator
        facts["allocator"] = "default" if allocator == "both" else allocator  # both: of 0.1.0
        if (outside := self.record.environment.get("compiler_settings")) is not None:
            facts["what is set outside of this program"] = str(outside)
        return facts

    @property
    def status(self) -> str:
        return NO_RECORD if self.missing else self.record.status.value

    @property
    def passed(self) -> bool:
        return self.record.status.passed

    @property
    def speedup(self) -> PairedEstimate | None:
        """Only of a result that passed, with an error that can be known."""
        estimate = self.comparison.estimate if self.passed else None
        return estimate if estimate is not None and estimate.error is not None else None

    @property
    def caches(self) -> str:
        """The state of the compile caches before the compilation, as far as the compiler says it."""
        if by_round(self.record, COLD):  # their times count, and not that of the timed process
            return COLD
        if self.count("compile_cache_hits"):
            return WARM
        return COLD if self.count("compile_cache_misses") else AS_FOUND

    def count(self, metric: str) -> int | None:
        value = self.record.metrics.get(metric)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def title(self) -> str:
        """``tiny_gpt NanoGPT (training, float32, cpu, scale small), inductor``"""
        known = self.conditions
        parts = [known[name] for name in ("mode", "precision", "device")]
        parts += [f"{name} {value}" for name, value in known.items() if name not in NAMED_FIRST and value]
        return plain(f"{known['suite']} {self.name} ({', '.join(parts)}), {self.compiler}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One side of the comparison: a run, or the ``parts`` of a base."""

    path: Path
    results: tuple[Member, ...]
    facts: Mapping[str, str] = field(default_factory=dict)  # of the machine and the programs
    notes: tuple[str, ...] = ()
    damaged_lines: int = 0
    parts: tuple[Run, ...] = ()

    @property
    def title(self) -> str:
        paths = ", ".join(str(run.path) for run in self.parts)
        return f"{len(self.parts)} runs, {paths}" if self.parts else str(self.path)


def representative(results: Sequence[Member]) -> Member:
    """Of the same result in several runs: the last that passed, else the last."""
    return next((result for result in reversed(results) if result.passed), results[-1])


def together(runs: Sequence[Run]) -> Run:
    """Several runs as one side. A result is there if one of them has it."""
    if len(runs) == 1:
        return runs[0]
    results: dict[tuple[object, ...], list[Member]] = {}
    for run in runs:
        for key, result in _by_identity(run).items():
            results.setdefault(key, []).append(result)
    return Run(
        path=runs[-1].path,
        results=tuple(replace(representative(own), runs=tuple(own)) for own in results.values()),
        facts=facts_of(merged_facts(r.record for run in runs for r in run.results), SHOWN_FACTS),
        notes=tuple(note for run in runs for note in run.notes),
        parts=tuple(runs),
    )


def facts_of(facts: Mapping[str, object], names: Iterable[str]) -> dict[str, str]:
    """The facts with these names that are known. A CPU that is the device is named once."""
    known = {name: str(facts[name]) for name in names if facts.get(name) not in (None, "")}
    if known.get("cpu") == known.get("device_name"):
        known.pop("cpu", None)
    return known


def conditions(record: Record, labels: Mapping[str, str]) -> dict[str, str]:
    """The conditions of a result. ``labels``: of suites."""
    job, case = record.job, record.job.case
    ran = "own" if case.batch_size is None else str(ran_batch(record))
    own = (name if value is True else f"{name}={value}" for name, value in identity(job.protocol))
    return {
        "suite": labels[case.suite],
        "mode": case.mode.value,
        "device": type_of(job.device),
        "precision": job.dtype,
        "compiler": compiler_label(record),
        "scale": case.scale,
        "batch size": "" if "batch" in case.at else ran,  # a swept batch is among the changes
        "changes": " ".join(case.changes),
        "options": " ".join(job.option_words),
        "protocol": " ".join(own),
    }


def load(flag: str, path: Path) -> Run:
    """The run at ``path``. Raises ``UsageError`` if it is missing or has no result."""
    file = stored(path / RECORDS) if path.is_dir() else path
    try:
        if AT in path.name and not file.exists():
            run = _of_environment(flag, path)
        elif file.is_file():
            run = load_records(flag, file)
        else:
            raise UsageError(f"{flag}: there is no run in {path}; {WHAT}")
    except OSError as error:
        raise UsageError(f"{flag}: {path} cannot be read ({error.strerror}); {WHAT}") from None
    if not run.results:
        raise UsageError(f"{flag}: {path} holds no result; {WHAT}")
    return run


def load_records(flag: str, path: Path) -> Run:
    """A run from its ``records.jsonl``. Planned results without a record are included as missing."""
    content, folder = read_run(path), path.parent
    in_folder = path.name.removesuffix(ENDING) == RECORDS
    plan = _plan(flag, folder) if in_folder and content.records else ()
    run = run_of(folder if in_folder else path, content.records, plan)
    notes = tuple(filter(None, (*content.damage, content.replaced, *run.notes)))
    return replace(run, notes=notes, damaged_lines=content.unused)


def run_of(place: Path, records: Sequence[Record], plan: Sequence[Job] = ()) -> Run:
    """A run from the records of its results. Those that ``plan`` has, too, are missing."""
    labels = suite_labels(job.case.suite for job in (*(record.job for record in records), *plan))
    measured = {(record.job.key, record.candidate) for record in records}
    missing = [  # a record needs a status; this one is not shown
        Record(job=job, candidate=candidate, status=Status.INFRA_ERROR)
        for job in plan
        for candidate in job.candidates
        if (job.key, candidate) not in measured
    ]
    cut_short = len(records) - len(whole(records))
    parts = [f"no record of {counted(len(missing), 'result')}"] if missing else []
    parts += [f"Ctrl-C cut {counted(cut_short, 'result')} short"] if cut_short else []
    return Run(
        path=place,
        results=(*results_of(records, labels), *results_of(missing, labels, missing=True)),
        facts=facts_of(merged_facts(records), SHOWN_FACTS),
        notes=(f"{plain(str(place))} is not finished: {', and '.join(parts)}",) if parts else (),
    )


def results_of(records: Sequence[Record], labels: dict[str, str], *, missing: bool = False) -> list[Member]:
    """The results of the records, with the estimates of the run's reports."""
    each = ((comparison, conditions(comparison.record, labels)) for comparison in compare(records))
    return [Member(comparison=comparison, conditions=named, missing=missing) for comparison, named in each]


def _of_environment(flag: str, path: Path) -> Run:
    folder, _, name = str(path).rpartition(AT)
    both = load(flag, Path(folder))
    names = environments_of(result.record for result in both.results)
    if name not in names:
        known = f"its environments are {', '.join(names)}" if names else "it was measured without --envs"
        raise UsageError(f"{flag}: {folder} has no environment {name!r}; {known}")
    return replace(in_environment(both, name), path=path)


def environments_of(records: Iterable[Record]) -> tuple[str, ...]:
    """The names of the environments of a run, the reference first."""
    return tuple(dict.fromkeys(e.name for record in records for e in record.job.environments))


def in_environment(run: Run, name: str) -> Run:
    """One environment of a run, as a run of its own: ``inductor@new`` is its inductor.

    Eager of the environment is left out: it was compared with eager of another environment.
    """
    ending = of_environment("", name)
    own = [result for result in run.results if result.compiler.endswith(ending)]
    results = []
    for result in own:  # each named as if its environment were the only one
        job, compiler = result.record.job, result.compiler.removesuffix(ending)
        words = " ".join(replace(job, environments=()).option_words)
        named = {**result.conditions, "compiler": compiler, "options": words}
        if compiler != CONTROL:
            results.append(replace(result, conditions=named, shares=(str(run.path.resolve()), job.key)))
    facts = facts_of(merged_facts(r.record for r in own if r.record.env == name), SHOWN_FACTS)
    return replace(run, results=tuple(results), facts=facts)


def _plan(flag: str, path: Path) -> tuple[Job, ...]:
    """The jobs of the run; empty without a plan. ``UsageError`` for one that is damaged."""
    try:
        return jobs_in(read_run_json(path))
    except FileNotFoundError:
        return ()
    except ValueError as error:
        raise UsageError(
            f"{flag}: {path / RUN} is damaged ({reason(error)}); move it away to compare the records alone"
        ) from None


Difference = tuple[str, str, str]  # the name of the condition, its value in A, and that in B
SAME_SUBJECT = ("suite", "mode", "compiler")
"""Results that differ in one of these are different subjects, not one subject under two conditions."""
Pair = tuple[Member, Member]


class Matched(NamedTuple):
    """Results with equal conditions, those of a subject with the nearest of other conditions, and others."""

    pairs: list[Pair]
    mismatches: list[Pair]
    only_first: list[Member]
    only_second: list[Member]


def match(first: Run, second: Run) -> Matched:
    """Each result appears once. Raises ``UsageError`` if the runs have no common result."""
    ours, theirs = _by_identity(first), _by_identity(second)
    subjects: dict[tuple[str, ...], list[Member]] = {}
    for key, result in theirs.items():
        if key not in ours:
            subjects.setdefault(_subject(result), []).append(result)
    pairs, mismatches, only_first = list[Pair](), list[Pair](), list[Member]()
    for key, result in ours.items():
        others = subjects.get(_subject(result), [])
        if key in theirs:
            pairs.append((result, theirs[key]))
        elif same := next((other for other in others if _batch_is_unknown(result, other)), None):
            others.remove(same)
            pairs.append((result, same))
        elif not others:
            only_first.append(result)
        else:
            nearest = min(others, key=lambda other: len(differences(result.conditions, other.conditions)))
            others.remove(nearest)
            mismatches.append((result, nearest))
    if not pairs:
        raise _nothing_in_common(first, second, mismatches)
    left = [result for results in subjects.values() for result in results if not result.missing]
    return Matched(pairs, mismatches, only_first, left)


def _batch_is_unknown(first: Member, second: Member) -> bool:
    """Whether they differ in the batch alone, and one failed: before its batch ran, or at smaller ones."""
    planned = {side.record.job.case.batch_size for side in (first, second)}
    unknown = any(side.record.model is None or side.record.samples is None for side in (first, second))
    names = [name for name, *_ in differences(first.conditions, second.conditions)]
    return unknown and len(planned) == 1 and names == ["batch size"]


def _subject(result: Member) -> tuple[str, ...]:
    return result.name, *(result.conditions[name] for name in SAME_SUBJECT)


def _by_identity(run: Run) -> dict[tuple[object, ...], Member]:
    results: dict[tuple[object, ...], Member] = {}
    for result in run.results:
        if result.key in results:
            two = f"{run.path} has two results of {result.title}"
            raise UsageError(f"--compare: {two}; compare runs that have one of each")
        results[result.key] = result
    return results


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[Difference, ...]:
    """The conditions or facts that both state with different values."""
    unlike = (name for name, value in first.items() if second.get(name, value) != value)
    return tuple((name, first[name] or "none", second[name] or "none") for name in unlike)


def _nothing_in_common(first: Run, second: Run, mismatches: Sequence[Pair]) -> UsageError:
    here, there = f"--compare: {first.path} and {second.path}", "compare two runs of the same models"
    for result, other in mismatches:
        name, old, new = differences(result.conditions, other.conditions)[0]
        which = f"of {result.name}, {name} is {old} in the first and {new} in the second"
        there = f"{there} under the same conditions"
        return UsageError(f"{here} measured nothing in the same way ({which}); {there}")
    if not {result.name for result in first.results} & {result.name for result in second.results}:
        return UsageError(f"{here} share no model; {there}")
    for name in SAME_SUBJECT:
        before, after = ({result.conditions[name] for result in run.results} for run in (first, second))
        if not before & after:
            values = f"{', '.join(sorted(before))} in the first, {', '.join(sorted(after))} in the second"
            return UsageError(f"{here} share models but no {name} ({values}); {there} with the same {name}")
    return UsageError(f"{here} share no model with the same compiler in the same mode; {there}")
