"""Reads one side of a comparison: a run's folder or its records, or one environment of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.devices import PLATFORMS
from harness.schema import Job, Record, Status, of_environment
from runner.analysis.derive import compare
from runner.analysis.results import CONTROL
from runner.errors import UsageError
from runner.labels import counted, merged_facts, plain, reason, suite_labels
from runner.runs.compare.run import TIMING_FACTS, Result, Run, conditions, facts_of
from runner.store.record_file import ENDING, stored, whole
from runner.store.run_folder import RECORDS, RUN, jobs_in, read_run, read_run_json

WHAT = "give the folder of a run, or its records.jsonl"
AT = "@"  # RUN@ENVIRONMENT: one environment of a run with --envs
SHOWN_FACTS = ("torch", *PLATFORMS, "cudnn", "driver", "triton", "python", *TIMING_FACTS)


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
    plan = _plan(flag, folder) if path.name.removesuffix(ENDING) == RECORDS and content.records else ()
    labels = suite_labels(job.case.suite for job in (*(record.job for record in content.records), *plan))
    measured = {(record.job.key, record.candidate) for record in content.records}
    missing = [  # a record needs a status; this one is not shown
        Record(job=job, candidate=candidate, status=Status.INFRA_ERROR)
        for job in plan
        for candidate in job.candidates
        if (job.key, candidate) not in measured
    ]
    place = folder if path.name.removesuffix(ENDING) == RECORDS else path
    cut_short = len(content.records) - len(whole(content.records))
    parts = (
        f"no record of {counted(len(missing), 'result')}" if missing else "",
        f"Ctrl-C cut {counted(cut_short, 'result')} short" if cut_short else "",
    )
    unfinished = ", and ".join(filter(None, parts))
    note = f"{plain(str(place))} is not finished: {unfinished}" if unfinished else ""
    return Run(
        path=place,
        results=(*results_of(content.records, labels), *results_of(missing, labels, missing=True)),
        facts=facts_of(merged_facts(content.records), SHOWN_FACTS),
        notes=tuple(filter(None, (*content.damage, content.replaced, note))),
        damaged_lines=content.unused,
    )


def results_of(
    records: Sequence[Record], labels: dict[str, str], *, missing: bool = False
) -> tuple[Result, ...]:
    """The results of the records, with the estimates of the run's reports."""
    return tuple(
        Result(comparison=comparison, conditions=conditions(comparison.record, labels), missing=missing)
        for comparison in compare(records)
    )


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
    compiled = [result for result in own if result.compiler != of_environment(CONTROL, name)]
    return replace(
        whole,
        path=path,
        results=tuple(_alone(result, ending, folder) for result in compiled),
        facts=facts_of(merged_facts(r.record for r in own if r.record.env == name), SHOWN_FACTS),
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
