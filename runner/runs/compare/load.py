"""Reads one side of a comparison: a run's folder or its records, or one environment of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.devices import PLATFORMS
from harness.schema import Job, Record, Scalar, Status, of_environment
from runner.analysis.comparison import CONTROL, Comparison
from runner.analysis.derive import compare
from runner.analysis.estimate import Limits
from runner.analysis.noise import crowding
from runner.analysis.verdicts.family import assumed_of
from runner.errors import UsageError
from runner.labels import compiler_label, merged_facts, plain, ran_batch, suite_labels
from runner.runs.compare.run import (
    AS_FOUND,
    COLD,
    NO_RECORD,
    WARM,
    Result,
    Run,
    Times,
    conditions,
)
from runner.runs.compare.statistics import se_of_median
from runner.store.run_folder import RECORDS, read_run
from runner.store.run_json import jobs_in, read_run_json

WHAT = "give the folder of a run, or its records.jsonl"
AT = "@"  # RUN@ENVIRONMENT: one environment of a run with --envs
TIMING_FACTS = ("device_name", "cpu", "cpus_usable", "threads")
SHOWN_FACTS = ("torch", *PLATFORMS, "cudnn", "driver", "triton", "python", *TIMING_FACTS)


def load(flag: str, path: Path) -> Run:
    """The run at ``path``. Raises ``UsageError`` if it is missing or has no result."""
    try:
        found = _load(flag, path)
    except OSError as error:
        raise UsageError(f"{flag}: {path} cannot be read ({error.strerror}); {WHAT}") from None
    if not found.results:
        raise UsageError(f"{flag}: {path} holds no result; {WHAT}")
    return found


def _load(flag: str, path: Path) -> Run:
    if path.is_dir():
        if (path / RECORDS).is_file():
            return load_records(path / RECORDS)
        raise UsageError(f"{flag}: {path} has no {RECORDS}; {WHAT}")
    if not path.exists() and AT in path.name:
        return _of_environment(flag, path)
    if not path.exists():
        raise UsageError(f"{flag}: there is no {path}; {WHAT}")
    if not path.is_file():
        raise UsageError(f"{flag}: {path} is not a regular file; {WHAT}")
    return load_records(path)


def load_records(path: Path) -> Run:
    """A run from its ``records.jsonl``. Planned results without a record are included as missing."""
    found = read_run(path)
    plan = _plan(path.parent) if path.name == RECORDS else ()
    labels = suite_labels(job.case.suite for job in (*(record.job for record in found.records), *plan))
    results = results_of(found.records, labels)
    measured = {(record.job.key, record.candidate) for record in found.records}
    missing = [(job, c) for job in plan for c in job.candidates if (job.key, c) not in measured]
    notes = [*found.damage, *filter(None, [found.replaced])]
    if missing and found.records:
        notes.append(f"{plain(str(path.parent))} is not finished: {len(missing)} results have no record")
    # a record needs a status; it is replaced in the next line
    planned = [Record(job=job, candidate=c, status=Status.INFRA_ERROR) for job, c in missing]
    absent = [replace(_bare(record, labels), status=NO_RECORD) for record in planned]
    facts = merged_facts(found.records)
    return Run(
        path=path.parent if path.name == RECORDS else path,
        results=(*results, *absent) if results else (),
        facts=_shown(facts),
        notes=tuple(notes),
        damaged_lines=found.unused,
    )


def _of_environment(flag: str, path: Path) -> Run:
    """One environment of a run, as a run of its own: ``inductor@new`` is its inductor.

    Eager of the environment is left out: it was compared with eager of another environment.
    """
    folder, _, name = str(path).rpartition(AT)
    whole = load(flag, Path(folder))
    if not (Path(folder) / RECORDS).is_file():
        raise UsageError(f"{flag}: {folder} has no {RECORDS}, so it has no environments; {WHAT}")
    records = read_run(Path(folder) / RECORDS).records
    names = tuple(dict.fromkeys(one.name for record in records for one in record.job.environments))
    if name not in names:
        known = f"its environments are {', '.join(names)}" if names else "it was measured without --envs"
        raise UsageError(f"{flag}: {folder} has no environment {name!r}; {known}")
    ending = of_environment("", name)
    # one result for each record, in its order; planned results without a record come after them
    times = [_times(record, Path(folder)) for record in records]
    times += [None] * (len(whole.results) - len(times))
    results = tuple(
        replace(result, conditions=_without_environment(result, ending), times=timed)
        for result, timed in zip(whole.results, times, strict=True)
        if result.compiler.endswith(ending) and result.compiler != of_environment(CONTROL, name)
    )
    facts = merged_facts(record for record in records if record.env == name)
    controls = tuple(result for result in whole.results if result.is_control)
    return replace(whole, path=path, results=results, facts=_shown(facts), controls=controls)


def _times(record: Record, folder: Path) -> Times | None:
    """None for a candidate that failed, or whose rounds have no number."""
    samples = record.samples
    if samples is None or not record.status.passed or len(samples.round_index) != len(samples):
        return None
    return Times(
        job=(str(folder.resolve()), record.job.key),
        rounds=tuple(zip(samples.process_of_round, samples.round_index, strict=True)),
        eager_s=samples.baseline_s,
        compiled_s=samples.candidate_s,
        assumed_sd=assumed_of(record),
    )


def _without_environment(result: Result, ending: str) -> dict[str, str]:
    options = " ".join(word for word in result.conditions["options"].split() if not word.startswith("envs_"))
    return {**result.conditions, "compiler": result.compiler.removesuffix(ending), "options": options}


def _shown(facts: Mapping[str, Scalar]) -> dict[str, str]:
    shown = {name: str(facts[name]) for name in SHOWN_FACTS if facts.get(name) not in (None, "")}
    if shown.get("cpu") == shown.get("device_name"):
        shown.pop("cpu", None)
    return shown


def results_of(records: Sequence[Record], labels: dict[str, str]) -> tuple[Result, ...]:
    """The results of the records, with the estimates of the run's reports."""
    return tuple(_result(comparison, labels) for comparison in compare(records))


def _plan(path: Path) -> tuple[Job, ...]:
    """The jobs of the run; empty if they cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return jobs_in(read_run_json(path))
    return ()


def _bare(record: Record, labels: dict[str, str]) -> Result:
    return Result(
        name=plain(record.job.case.name),
        conditions=dict(
            conditions(record.job, labels[record.job.case.suite], compiler_label(record), ran_batch(record))
        ),
        machine=dict(_machine(record)),
        is_control=_is_control(record),
        status=record.status.value,
        limits=Limits.of(record.job.protocol),
        failure=plain(f"{record.failure.kind}: {record.failure.message}") if record.failure else "",
    )


def _is_control(record: Record) -> bool:
    """False for eager of another environment, whose baseline is eager of the reference."""
    if record.job.environments:
        return record.candidate == of_environment(CONTROL, record.job.environments[0].name)
    return compiler_label(record) == CONTROL


def _machine(record: Record) -> Iterator[tuple[str, str]]:
    for name in TIMING_FACTS:
        value = record.environment.get(name)
        repeated = name == "cpu" and value == record.environment.get("device_name")
        if value not in (None, "") and not repeated:
            yield name, str(value)
    yield "allocator", record.job.extras.allocator


def _result(comparison: Comparison, labels: dict[str, str]) -> Result:
    record = comparison.record
    samples = record.samples if comparison.n else None
    return replace(
        _bare(record, labels),
        graph_breaks=_count(record, "graph_breaks"),
        calls_captured=_count(record, "calls_captured"),
        eager_fallbacks=_count(record, "eager_fallbacks"),
        speedup=comparison.estimate if record.status.passed else None,
        eager_s=_seconds(comparison.baseline_ms),
        eager_se=se_of_median(samples.baseline_s) if samples else None,
        compiled_s=_seconds(comparison.candidate_ms),
        compiled_se=se_of_median(samples.candidate_s) if samples else None,
        compile_s=comparison.compilation_latency_s,
        caches=_caches(record),
        memory_ratio=comparison.memory_ratio,
        crowded=crowding(comparison) is not None,
    )


def _caches(record: Record) -> str:
    """The state of the compile caches before the compilation. See ``Result.caches``."""
    extras = record.job.extras
    if extras.cold_start or extras.warm_start:
        return "empty" if extras.cold_start else "filled"
    if _count(record, "compile_cache_hits"):
        return WARM
    return COLD if _count(record, "compile_cache_misses") else AS_FOUND


def _count(record: Record, name: str) -> int | None:
    found = record.metrics.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
