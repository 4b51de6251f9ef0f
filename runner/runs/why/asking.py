"""``--why`` and ``--tune`` as policies: what a job measures next, and what its records so far say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from harness.backends.settings.candidates import compiler_of
from harness.schema import STOPPED, Job, Mode, Record
from runner.engine.experiments import Attempt, Policy, attempts, next_attempt
from runner.errors import UsageError
from runner.plan.compilers import Ask, with_availability
from runner.runs.why.causes import OF_DYNAMO, Proposal, proposals, settings_to_try
from runner.runs.why.explain import NoTimes, Why, acting, candidates_for, explain, with_setting
from runner.runs.why.looked import LOOKING, TRACE, Looked
from runner.store.joined import results_of

LOOK, TOGETHER = "look", "together"
"""In ``experiment``: the copy for looking, and the candidate without all causes that act."""

ONCE: Mapping[str, Any] = {"compile_runs": 0, "start_up": 0, "shapes": "", "trajectory": 0}
LOOKS = 3  # rounds of the copy that is compiled for looking
OF_CPU = (
    *("layout_optimization=False", "force_layout_optimization=True", "fallback_random=True"),
    *("decompose.threshold_backward=False", "epilogue_fusion=False", "cpp.simdlen=256", "cpp_wrapper=True"),
    *("pattern_matcher=False", "max_autotune=True"),
)
OF_CUDA = (
    *("mode=reduce-overhead", "mode=max-autotune-no-cudagraphs", "coordinate_descent_tuning=True"),
    *("layout_optimization=False", "fallback_random=True", "epilogue_fusion=False", "pattern_matcher=False"),
)
TRAINING_ONLY = ("decompose.threshold_backward=False", "fallback_random=True")

Say = Callable[[str], object]
Answer = Callable[[Job, Sequence[Record], Say], Why]
"""What the records of a job with one candidate say. Raises ``NoTimes``."""


def _part(records: Sequence[Record], part: str) -> list[Record]:
    """The records of the look, or of what was timed together, as those of a job of its own."""
    return [replace(record, experiment="") for record in records if record.experiment == part]


def next_of_why(job: Job, records: Sequence[Record]) -> Attempt | None:
    """The look; the candidate beside those that remove a cause; and without all causes that act."""
    kept = [record for record in records if record.rounds_ended != STOPPED]
    if not (looks := _part(kept, LOOK)):
        return _look(job)
    pairs = replace(job, extras=replace(job.extras, explain=True))
    settings = settings_to_try(proposals(Looked.of(looks[0])))
    if (attempt := _in_pairs(pairs, settings, kept)) is not None:
        return attempt
    try:
        together = acting(explained(job, kept))
    except NoTimes:
        return None
    if together is None:
        return None
    names = with_setting(job.candidates[0], together.settings[0]), job.candidates[0]
    alone = replace(job, candidates=names, extras=replace(job.extras, **ONCE))
    attempt = next_attempt(alone, _part(kept, TOGETHER))
    note = f"{job.case.name}: more than one cause acts, so {names[0]}"
    return attempt and replace(attempt, experiment=TOGETHER, note=note if attempt.is_first else "")


def _look(job: Job) -> Attempt:
    (candidate,) = job.candidates
    compiler = compiler_of(candidate)
    ahead = compiler == "aot_inductor"  # without Dynamo and its settings
    looking = [setting for setting in LOOKING if not (ahead and setting.startswith(OF_DYNAMO))]
    name = with_setting(candidate, ",".join(looking)) if "inductor" in compiler else candidate
    protocol = replace(job.protocol, accuracy=False, repeat=LOOKS, processes=1)
    extras = replace(job.extras, explain=True, **ONCE)
    return Attempt(
        replace(job, candidates=(name,), protocol=protocol, extras=extras),
        (name,),
        experiment=LOOK,
        folders={"TORCH_TRACE": TRACE},
        note=f"{job.case.name}: a second copy of {candidate}, for looking",
    )


def _in_pairs(job: Job, settings: Sequence[str], records: Sequence[Record]) -> Attempt | None:
    """The candidate, and beside it those with one of these settings."""
    names = candidates_for(job.candidates[0], settings)
    attempt = next_attempt(replace(job, candidates=names), records)
    note = f"{job.case.name}: {', '.join(names)}, in the same rounds"
    return attempt and replace(attempt, note=note if attempt.is_first else "")


def explained(job: Job, records: Sequence[Record], say: Say = lambda _: None) -> Why:
    """Why the job's only candidate is slower or faster than eager. Raises ``NoTimes``."""
    (candidate,) = job.candidates
    looked = next(map(Looked.of, _part(records, LOOK)), None)
    why = explain(candidate, results_of(records), proposals(looked) if looked else (), looked)
    together, records = acting(why), _part(records, TOGETHER)
    if together is None or not records:
        return why
    try:
        second = explain(candidate, results_of(records), (together,), None)
    except NoTimes as error:
        say(f"{job.case.name}: together, {error}")
        return why
    # no cause if the step is slower with it
    return replace(why, together=next(iter(second.causes), None), attempts=(*why.attempts, *second.attempts))


def next_of_tune(job: Job, records: Sequence[Record]) -> Attempt | None:
    return _in_pairs(job, tuning(job), records)


def tuned(job: Job, records: Sequence[Record], say: Say) -> Why:
    """What the settings that matter on the device give for the job's only candidate. Raises ``NoTimes``."""
    unnamed = Proposal(cause="", sentence="", evidence="", settings=tuning(job))  # no cause is claimed
    return explain(job.candidates[0], results_of(records), (unnamed,), None)


def asked_why(job: Job, measure: Callable[[Job], Iterable[Record]]) -> Why:
    """The answer of ``--why``, at once. ``measure``: every record of this job. Raises ``NoTimes``."""
    records: list[Record] = []
    for attempt in attempts(next_of_why, job, records):
        own = measure(attempt.job)
        records += [replace(r, experiment=attempt.experiment or r.experiment) for r in own]
    return explained(job, records)


def usable(policy: Policy, ask: Ask) -> Policy:
    """The policy, with the reason for each of its candidates that cannot be used here."""
    ask = cache(ask)

    def checked(job: Job, records: Sequence[Record]) -> Attempt | None:
        if (attempt := policy(job, records)) is None:
            return None
        (known,) = with_availability((attempt.job,), ask, skip=True)
        return replace(attempt, job=known)

    return checked


ASKED: Mapping[str, tuple[Policy, Answer]] = {"why": (next_of_why, explained), "tune": (next_of_tune, tuned)}


def tuning(job: Job) -> tuple[str, ...]:
    """The settings for this job. ``UsageError`` if there are none."""
    training = job.case.mode is Mode.TRAINING
    settings = OF_CPU if job.device == "cpu" else OF_CUDA
    chosen = [setting for setting in settings if training or setting not in TRAINING_ONLY]
    chosen += ["functorch.activation_memory_budget=0.5"] if training else ["freezing=True"]
    if "inductor" not in job.candidates[0]:
        chosen = [setting for setting in chosen if setting.startswith(OF_DYNAMO)]
    if not chosen:
        raise UsageError(f"--tune: {job.candidates[0]} takes none of the settings that matter")
    return tuple(chosen)
