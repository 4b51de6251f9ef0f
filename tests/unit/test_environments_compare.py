"""The tables of several environments: everything against eager of the reference environment."""

from collections.abc import Mapping
from dataclasses import replace

from harness.schema import Record, Samples, Status
from runner.analysis.derive import summarize
from runner.analysis.results import REFERENCE
from runner.analysis.verdicts import Reason, Verdict
from runner.plan.environments.spec import candidates_in
from tests.factories import (
    known,
    make_environments,
    make_job,
    make_parity,
    make_record,
    make_samples,
    with_samples,
)

OLD, NEW = make_environments("old", "new")
ENVIRONMENTS = replace(OLD, torch="2.2.2"), replace(NEW, torch="2.13.0")
SPEEDUPS = {"eager@new": 0.5, "inductor@old": 2.0, "inductor@new": 4.0}
"""Against eager of the candidate's own environment, and for eager against the reference's."""


def timed(candidate: str, model: str) -> Samples:
    """Eager is half as fast in the new environment: inductor's 4x there is 2x against the reference's."""
    own = make_samples(speedup=SPEEDUPS[candidate], machine=model, seed=candidate, rounds=21)
    slower = 2.0 if candidate == "inductor@new" else 1.0
    return replace(
        own,
        baseline_s=tuple(s * slower for s in own.baseline_s),
        candidate_s=tuple(s * slower for s in own.candidate_s),
        reference_s=own.baseline_s,
        reference_position=own.baseline_position,
        round_index=tuple(range(21)),
        rounds_by_process=(7, 7, 7),
    )


def records(model: str = "m", statuses: Mapping[str, Status] | None = None) -> list[Record]:
    job = make_job(model, environments=ENVIRONMENTS, candidates=candidates_in(("inductor",), ENVIRONMENTS))
    copies = []
    for candidate in job.candidates:
        env = candidate.split("@")[1]
        status = (statuses or {}).get(candidate, Status.PASS)
        record = make_record(job, candidate, status=status)
        if record.samples is not None:
            record = replace(record, samples=timed(candidate, model))
        agreement = make_parity() if env != "old" else None
        copies.append(replace(record, env=env, env_parity=agreement))
    return copies


def test_one_process_a_side_has_no_verdict_across_environments() -> None:
    alone = [with_samples(r, rounds_by_process=()) for r in records()]
    summary = summarize(alone)
    assert {row.verdict for row in summary.of(REFERENCE)} == {Verdict.INCONCLUSIVE}
    assert {known(row.open).reason for row in summary.of(REFERENCE)} == {Reason.SIDES}
    own = {c.record.candidate: c.verdict for c in summary.comparisons}
    assert own["eager@new"] is Verdict.INCONCLUSIVE  # over eager of another process
    assert own["inductor@new"] is Verdict.FASTER  # over eager of its own process
    assert any("--processes=3" in caveat for caveat in summary.caveats)
    assert not any("--processes=3" in caveat for caveat in summarize(records()).caveats)
