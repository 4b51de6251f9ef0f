"""The order of work of ``--why`` and ``--tune``: look, propose, time the candidates, and judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.schema import Job, Record
from runner.runs.why.explain import (
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
from runner.runs.why.tune import tuning

LOOK, PAIRS, TOGETHER = "look", "pairs", "together"
LOOKS = 3  # rounds of the copy that is compiled for looking

Measure = Callable[[Job, str], Sequence[Record]]
"""Measures the job, in a folder of this name, and returns its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The explanation, and the records behind it; without times, the sentence that says so."""

    why: Why | None
    problem: str = ""
    looked: Looked | None = None


def asked_why(job: Job, measure: Measure, say: Callable[[str], None]) -> Answer:
    """Why the job's only candidate is slower or faster than eager."""
    (candidate,) = job.candidates
    look = with_setting(candidate, ",".join(LOOKING)) if "inductor" in candidate else candidate
    say(f"{job.case.name}: a second copy of {candidate}, for looking")
    protocol = replace(job.protocol, accuracy=False, repeat=LOOKS)
    extras = replace(job.extras, explain=True)
    records = measure(replace(job, candidates=(look,), protocol=protocol, extras=extras), LOOK)
    looked = Looked.of(records[0]) if records else None
    proposed = proposals(looked) if looked else ()
    pairs = replace(job, candidates=candidates_for(candidate, settings_to_try(proposed)), extras=extras)
    say(f"{job.case.name}: {', '.join(pairs.candidates)}, in the same rounds")
    try:
        why = explain(candidate, measure(pairs, PAIRS), proposed, looked)
        if acting(why):
            both = with_setting(candidate, together_setting(why))
            say(f"{job.case.name}: more than one cause acts, so {both}")
            why = with_together(why, candidate, measure(replace(job, candidates=(both, candidate)), TOGETHER))
    except ValueError as error:
        return Answer(why=None, problem=str(error), looked=looked)
    return Answer(why=why, looked=looked)


def tuned(job: Job, measure: Measure, say: Callable[[str], None]) -> Answer:
    """What the settings that matter on the device give for the job's only candidate."""
    (candidate,) = job.candidates
    proposed = tuning(job)
    timed = replace(job, candidates=candidates_for(candidate, proposed[0].settings))
    say(f"{job.case.name}: {', '.join(timed.candidates)}, in the same rounds")
    try:
        return Answer(why=explain(candidate, measure(timed, PAIRS), proposed, None))
    except ValueError as error:
        return Answer(why=None, problem=str(error))
