"""The order of work of ``--why`` and ``--tune``: look, propose, time the candidates, and judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from harness.backends.settings.candidates import compiler_of
from harness.schema import Job, Mode, Record
from runner.errors import UsageError
from runner.runs.why.causes import OF_DYNAMO
from runner.runs.why.explain import (
    Attempt,
    NoTimes,
    Proposal,
    Why,
    acting,
    candidates_for,
    explain,
    proposals,
    settings_to_try,
    together_setting,
    with_setting,
    with_together,
)
from runner.runs.why.looked import LOOKING, Looked

LOOK, PAIRS, TOGETHER = "look", "pairs", "together"
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

Measure = Callable[[Job, str], Sequence[Record]]
"""Measures the job, in a folder of this name, and returns its records."""


def asked_why(job: Job, measure: Measure, say: Callable[[str], None]) -> Why:
    """Why the job's only candidate is slower or faster than eager. Raises ``NoTimes``."""
    (candidate,) = job.candidates
    compiler = compiler_of(candidate)
    ahead = compiler == "aot_inductor"  # without Dynamo and its settings
    looking = [setting for setting in LOOKING if not (ahead and setting.startswith(OF_DYNAMO))]
    look = with_setting(candidate, ",".join(looking)) if "inductor" in compiler else candidate
    say(f"{job.case.name}: a second copy of {candidate}, for looking")
    protocol = replace(job.protocol, accuracy=False, repeat=LOOKS, processes=1)
    extras = replace(job.extras, explain=True)
    once = replace(extras, compile_runs=0, start_up=0, shapes="")
    records = measure(replace(job, candidates=(look,), protocol=protocol, extras=once), LOOK)
    looked = Looked.of(records[0]) if records else None
    proposed = proposals(looked) if looked else ()
    pairs = replace(job, candidates=candidates_for(candidate, settings_to_try(proposed)), extras=extras)
    say(f"{job.case.name}: {', '.join(pairs.candidates)}, in the same rounds")
    why = explain(candidate, measure(pairs, PAIRS), proposed, looked)
    if not acting(why):
        return why
    both = with_setting(candidate, together_setting(why))
    say(f"{job.case.name}: more than one cause acts, so {both}")
    try:
        return with_together(why, candidate, measure(replace(job, candidates=(both, candidate)), TOGETHER))
    except NoTimes as error:
        say(f"{job.case.name}: together, {error}")
        return why


def tuned(job: Job, measure: Measure, say: Callable[[str], None]) -> Why:
    """What the settings that matter on the device give for the job's only candidate. Raises ``NoTimes``."""
    (candidate,) = job.candidates
    proposed = tuning(job)
    timed = replace(job, candidates=candidates_for(candidate, proposed[0].settings))
    say(f"{job.case.name}: {', '.join(timed.candidates)}, in the same rounds")
    return explain(candidate, measure(timed, PAIRS), proposed, None)


def tuning(job: Job) -> tuple[Proposal, ...]:
    """The settings for this job, as one proposal: no cause is claimed. ``UsageError`` if there are none."""
    training = job.case.mode is Mode.TRAINING
    settings = OF_CPU if job.device == "cpu" else OF_CUDA
    chosen = [setting for setting in settings if training or setting not in TRAINING_ONLY]
    chosen += ["functorch.activation_memory_budget=0.5"] if training else ["freezing=True"]
    if "inductor" not in job.candidates[0]:
        chosen = [setting for setting in chosen if setting.startswith(OF_DYNAMO)]
    if not chosen:
        raise UsageError(f"--tune: {job.candidates[0]} takes none of the settings that matter")
    return (Proposal(cause="", sentence="", evidence="", settings=tuple(chosen)),)


def winner(attempts: Sequence[Attempt]) -> Attempt | None:
    """The fastest setting that helps; None: the plain candidate stays."""
    helping = (attempt for attempt in attempts if attempt.helps)
    return max(helping, key=lambda attempt: attempt.comparison.speedup or 0.0, default=None)
