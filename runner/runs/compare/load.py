"""Reads one side of a comparison: a run's folder or its records, or one environment of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.devices import PLATFORMS
from harness.schema import Job, Record, Scalar, Status, of_environment
from runner.analysis.comparison import CONTROL, Comparison
from runner.analysis.derive import compare
from runner.errors import UsageError
from runner.labels import compiler_label, merged_facts, plain, ran_batch, suite_labels
from runner.runs.compare.run import TIMING_FACTS, Result, Run, conditions
from runner.store.run_folder import RECORDS, read_run
from runner.store.run_json import jobs_in, read_run_json

WHAT = "give the folder of a run, or its records.jsonl"
AT = "@"  # RUN@ENVIRONMENT: one environment of a run with --envs
SHOWN_FACTS = ("torch", *PLATFORMS, "cudnn", "driver", "triton", "python", *TIMING_FACTS)


def load(flag: str, path: Path) -> Run:
    """The run at ``path``. Raises ``UsageError`` if it is missing or has no result."""
    try:
        run = _load(flag, path)
    except OSError as error:
        raise UsageError(f"{flag}: {path} cannot be read ({error.strerror}); {WHAT}") from None
    if not run.results:
        raise UsageError(f"{flag}: {path} holds no result; {WHAT}")
    return run


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
    stored = read_run(path)
    plan = _plan(path.parent) if path.name == RECORDS else ()
    labels = suite_labels(job.case.suite for job in (*(record.job for record in stored.records), *plan))
    measured = {(record.job.key, record.candidate) for record in stored.records}
    # a record needs a status; a result without a comparison has none
    missing = [
        Record(job=job, candidate=candidate, status=Status.INFRA_ERROR)
        for job in plan
        if stored.records
        for candidate in job.candidates
        if (job.key, candidate) not in measured
    ]
    notes = [*stored.damage, *filter(None, [stored.replaced])]
    if missing:
        notes.append(f"{plain(str(path.parent))} is not finished: {len(missing)} results have no record")
    return Run(
        path=path.parent if path.name == RECORDS else path,
        results=(*results_of(stored.records, labels), *(_result(record, None, labels) for record in missing)),
        facts=_shown(merged_facts(stored.records)),
        notes=tuple(notes),
        damaged_lines=stored.unused,
    )


def results_of(records: Sequence[Record], labels: dict[str, str]) -> tuple[Result, ...]:
    """The results of the records, with the estimates of the run's reports."""
    return tuple(_result(comparison.record, comparison, labels) for comparison in compare(records))


def _result(record: Record, comparison: Comparison | None, labels: dict[str, str]) -> Result:
    suite, compiler = labels[record.job.case.suite], compiler_label(record)
    named = dict(conditions(record.job, suite, compiler, ran_batch(record)))
    return Result(record=record, comparison=comparison, conditions=named)


def _of_environment(flag: str, path: Path) -> Run:
    """One environment of a run, as a run of its own: ``inductor@new`` is its inductor.

    Eager of the environment is left out: it was compared with eager of another environment.
    """
    folder, _, name = str(path).rpartition(AT)
    whole = load(flag, Path(folder))
    names = tuple(dict.fromkeys(e.name for result in whole.results for e in result.record.job.environments))
    if name not in names:
        known = f"its environments are {', '.join(names)}" if names else "it was measured without --envs"
        raise UsageError(f"{flag}: {folder} has no environment {name!r}; {known}")
    ending = of_environment("", name)
    own = [result for result in whole.results if result.compiler.endswith(ending)]
    return replace(
        whole,
        path=path,
        results=tuple(
            _alone(result, ending, folder)
            for result in own
            if result.compiler != of_environment(CONTROL, name)
        ),
        facts=_shown(merged_facts(result.record for result in own if result.record.env == name)),
        controls=tuple(result for result in whole.results if result.is_control),
    )


def _alone(result: Result, ending: str, folder: str) -> Result:
    """The result, named as if its environment were the only one."""
    job = result.record.job
    named = {
        **result.conditions,
        "compiler": result.compiler.removesuffix(ending),
        "options": " ".join(replace(job, environments=()).option_words),
    }
    return replace(result, conditions=named, shares=(str(Path(folder).resolve()), job.key))


def _shown(facts: Mapping[str, Scalar]) -> dict[str, str]:
    shown = {name: str(facts[name]) for name in SHOWN_FACTS if facts.get(name) not in (None, "")}
    if shown.get("cpu") == shown.get("device_name"):
        shown.pop("cpu", None)
    return shown


def _plan(path: Path) -> tuple[Job, ...]:
    """The jobs of the run; empty if they cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return jobs_in(read_run_json(path))
    return ()
