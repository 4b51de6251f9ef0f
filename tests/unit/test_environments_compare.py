"""The tables of several environments: everything against eager of the reference environment."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from harness.schema import Record, Samples, Status
from runner.analysis.derive import summarize
from runner.analysis.estimate import Reason, Verdict
from runner.analysis.results import PAIRS, REFERENCE, Ratio, Summary, same_results
from runner.plan.environments.spec import candidates_in
from runner.reports import render_all
from runner.reports.parts.ratios import versions
from tests.factories import (
    known,
    make_environments,
    make_job,
    make_parity,
    make_record,
    make_samples,
    printed,
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


def across(summary: Summary) -> dict[tuple[str, str], Ratio]:
    return {(row.first.env, row.first.name): row for row in summary.of(REFERENCE)}


def test_what_counts_in_an_average() -> None:
    wrong = {"inductor@new": Status.FAIL_ACCURACY}
    summary = summarize([*records("one"), *records("two", wrong)])
    averages = {(row.first.env, row.first.name): row for row in summary.averages_of(REFERENCE)}
    assert (averages["new", "inductor"].mean.models, averages["new", "inductor"].total) == (1, 2)
    assert averages["old", "inductor"].mean.models == 2
    assert averages["new", "eager"].mean.value == pytest.approx(0.5, rel=0.02)
    assert versions(averages["new", "eager"]) == "torch 2.13.0"
    text = printed([*records("one"), *records("two", wrong)], 200)
    assert "Environments: geometric mean against eager of old" in text
    assert re.search(r"new +torch 2\.13\.0 +inductor .* 1/2", text)


def test_an_environment_with_other_results_counts_nowhere() -> None:
    bad = make_parity(Status.FAIL_ACCURACY)
    altered = [replace(r, env_parity=bad) if r.env == "new" else r for r in records()]
    summary = summarize(altered)
    old, new = (across(summary)[env, "inductor"] for env in ("old", "new"))
    assert (same_results(new.record), new.counts, old.counts) == (False, False, True)
    text = printed(altered, 200)
    assert "DIFFERENT" in text
    assert "(faster)" in text


def test_without_the_reference_there_is_a_row_and_no_number() -> None:
    remaining = [with_samples(r, reference_s=()) for r in records()]
    summary = summarize(remaining)
    assert all(
        row.estimate is None and row.verdict is None and not row.counts for row in summary.of(REFERENCE)
    )
    assert all(average.mean.value is None for average in summary.averages_of(REFERENCE))
    assert "Environments" in printed(remaining, 100)


def test_the_files() -> None:
    files = render_all(summarize(records()), ["csv", "md"])
    (json_file,) = render_all(summarize(records()), ["json"]).values()
    content = json.loads(json_file)
    rows = [row["candidate"] for row in content["environments"]]
    assert rows == ["eager@new", "inductor@old", "inductor@new"]
    assert {row["reference"] for row in content["environments"]} == {"old"}
    assert content["environments"][2]["speedup"] == pytest.approx(2.0, rel=0.02)
    assert [row.get("same_results") for row in content["environments"][1:]] == [None, True]
    assert len(content["environment_averages"]) == 3
    report = files["report.md"].decode()
    assert "## Environments: toys, training" in report
    assert "## Environments: geometric mean" not in report  # of one model
    assert "compared with eager of old" in report


def test_a_slower_environment_and_a_moved_control_are_found() -> None:
    titles = [finding.title for finding in summarize(records()).warnings]
    assert "Eager is slower in another environment" in titles
    assert not any(title.startswith("Slower than eager") for title in titles)
    job = make_job(environments=ENVIRONMENTS, candidates=("eager@old",))
    moved = replace(make_record(job, "eager@old", speedup=1.2, jitter=0.001), env="old")
    titles = [finding.title for finding in summarize([moved]).warnings]
    assert "The A/A control between processes moved" in titles


def test_two_environments_are_paired_also_where_the_reference_failed() -> None:
    *_, last = records()
    new = with_samples(last, reference_s=(), reference_position=())
    samples = known(new.samples)
    old = replace(new, env="old", candidate="inductor@old")
    slower = with_samples(old, baseline_s=tuple(s * 2 for s in samples.baseline_s))
    (pair,) = summarize([new, slower]).of(PAIRS)
    assert known(pair.estimate).n == len(samples)
