"""Study C: compile time and run time of torch.compile's modes, compared with eager on published models.

The runner's workers measure, as in any run: rounds in random order, parity, proof of compilation.
Each mode has a process of its own with empty compile caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from harness.codec import to_json
from harness.schema import CompilerOptions, Extras, Job, Mode, Protocol, Record
from runner.cli.commands import job_command
from runner.cli.progress import estimates
from runner.engine.executors import Doing, Executor, Started, Timed
from runner.engine.executors import Work as Wanted
from runner.engine.executors.local import LocalExecutor
from runner.plan.compilers import with_availability
from runner.plan.config import Changes, RunConfig, Selection
from runner.plan.jobs import plan
from runner.plan.probe import usable_compilers
from runner.store.run_folder import RunFolder
from studies.compile_modes.options import MODELS, MODES, CompileModesOptions
from studies.compile_modes.results import mode_of, outcome_line, title_of
from studies.journal import Journal, begin
from studies.shown import progress

MEASURE_S = 40.0  # limit of the rounds of each mode
TIMEOUT_S = 3600.0  # limit of one worker; max-autotune of a large model takes long


def run(options: CompileModesOptions, command: Sequence[str]) -> int:
    """Measures every model in every mode and reports. ``UsageError`` before anything is written."""
    jobs = with_availability(planned(options), usable_compilers, skip=True)
    journal = Journal(options.output_dir, "compile-modes")
    with closing(journal):
        begin(journal, "compile-modes", options, command)
        measure(jobs, journal, LocalExecutor(job_command))
    from studies.report import report

    return report(journal.path)


def planned(options: CompileModesOptions) -> tuple[Job, ...]:
    """A job for each model and precision, with the modes as its candidates."""
    return tuple(job for name in options.models for job in plan(_config(name, options)))


def _config(name: str, options: CompileModesOptions) -> RunConfig:
    model = MODELS[name]
    prompt, new = options.tokens_of(name)
    return RunConfig(
        suites=(model.suite,),
        modes=(model.mode,),
        devices=(options.device,),
        dtypes=options.dtypes,
        compilers=tuple(MODES[mode] for mode in options.modes),
        selection=Selection(only=(name,)),
        options=CompilerOptions(freezing=bool(options.freezing)),
        changes=Changes(
            scale=options.scale_of(name),
            batch_size=options.batch_of(name),
            prompt_tokens=prompt,
            new_tokens=new,
        ),
        protocol=replace(
            Protocol(),
            repeat=options.rounds,
            max_measure_s=MEASURE_S,
            timeout_s=TIMEOUT_S,
            threads=options.threads,
            seed=options.seed,
            isolate=True,  # in one process, a later mode would use what an earlier mode compiled
        ),
        extras=Extras(cold_start=True),
        output_dir=None,
    )


def measure(jobs: Sequence[Job], journal: Journal, executor: Executor) -> None:
    """Runs the jobs and writes the result of each candidate to the journal as soon as it is final."""
    work = [Wanted(job=job, candidates=job.candidates) for job in jobs]
    folder = RunFolder(journal.path.resolve())
    total = sum(len(one.candidates) for one in work)
    with progress(total) as shown, closing(executor.run(work, folder, lambda: False)) as events:
        for event in events:
            if isinstance(event, Record):
                journal.write("outcome", mode=mode_of(event), record=to_json(movable(event, folder.path)))
                shown.advance(title_of(event.job))
                shown.say(f"    {outcome_line(event)}")
            elif isinstance(event, Started):
                shown.say(f"{title_of(event.job)}: {sizes_text(event.job)}")
            elif isinstance(event, Doing):
                doing = f"{event.activity.phase} {event.activity.variant}".strip()
                shown.advance(f"{title_of(event.job)}  {doing}", 0)
            elif isinstance(event, Timed):
                shown.advance(f"{title_of(event.job)}  round {event.done}  {estimates(event.pairs)}", 0)


def movable(record: Record, folder: Path) -> Record:
    """The record without the path of the folder, because the folder may be moved."""
    facts = {
        name: value.removeprefix(f"{folder}/") if isinstance(value, str) else value
        for name, value in record.environment.items()
    }
    return replace(record, environment=facts)


def sizes_text(job: Job) -> str:
    """``scale full, batch 4 of the suite's 128``"""
    case = job.case
    text = f"scale {case.scale}, batch {case.batch_size}"
    if case.mode is Mode.GENERATE:
        return f"{text}, {case.prompt_tokens} tokens read, {case.new_tokens} generated"
    if case.published_batch_size not in (None, case.batch_size):
        text += f" of the suite's {case.published_batch_size}"
    return text
