"""Splitting a plan: every job in exactly one part, the same everywhere, and equally many in each part."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.schema import Job
from runner.cli.main import main
from runner.errors import UsageError
from runner.plan.partition import Partition, balanced, our_part
from tests.cli.command import TOYS
from tests.command_line import parsed
from tests.factories import make_job


def plan_of(skips: list[bool], suite: str = "toys") -> list[Job]:
    return [
        make_job(f"m{i}", suite=suite, skip="too large" if skip else None) for i, skip in enumerate(skips)
    ]


def names(parts: tuple[tuple[Job, ...], ...]) -> list[list[str]]:
    return [[job.case.name for job in part] for part in parts]


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 12))
def test_the_parts_are_the_plan_with_equally_many_jobs_in_its_order(skips: list[bool], total: int) -> None:
    jobs = plan_of(skips)
    parts = balanced(jobs, total)
    assert sorted(jobs.index(job) for part in parts for job in part) == list(range(len(jobs)))
    assert all(list(part) == sorted(part, key=jobs.index) for part in parts)
    for counts in ([len(part) for part in parts], [sum(not j.case.skip for j in part) for part in parts]):
        assert max(counts) - min(counts) <= 1


@given(st.lists(st.booleans(), max_size=20), st.integers(1, 5), st.integers())
def test_neither_the_order_of_the_plan_nor_the_folder_of_a_suite_changes_a_part(
    skips: list[bool], total: int, seed: int
) -> None:
    parts = names(balanced(plan_of(skips, "/home/a/mine.py"), total))
    assert names(balanced(plan_of(skips, "/somewhere/else/mine.py"), total)) == parts
    other = plan_of(skips)
    random.Random(seed).shuffle(other)
    here = names(balanced(plan_of(skips), total))
    assert [set(part) for part in names(balanced(other, total))] == [set(part) for part in here]


def test_the_parts_of_a_plan_do_not_change_between_versions() -> None:
    assert names(balanced(plan_of([False] * 7), 3)) == [["m2", "m3", "m5"], ["m0", "m6"], ["m1", "m4"]]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--total-partitions=3"], "--total-partitions needs --partition-id: say which part to run, 0 to 2"),
        (["--partition-id=0"], "--partition-id needs --total-partitions"),
        (
            ["--total-partitions=3", "--partition-id=3"],
            "--partition-id: there is no part 3 of 3; choose from 0 to 2",
        ),
        (["--total-partitions=0", "--partition-id=0"], "--total-partitions: 0 is too small"),
        (["--total-partitions=2", "--partition-id=-1"], "--partition-id: -1 is too small"),
    ],
)
def test_flags_that_do_not_fit(words: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parsed(["--training", *words])


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[str], str]:
    assert main([f"--suites={TOYS}", *words]) == 0
    captured = capsys.readouterr()
    return captured.out.splitlines(), captured.err


@pytest.mark.parametrize("action", [["--list"], ["--print-run-commands"], []])
def test_an_empty_part_is_a_sentence_and_no_error(
    capsys: pytest.CaptureFixture[str], action: list[str], tmp_path: Path
) -> None:
    part = ["--total-partitions=9", "--partition-id=5", f"--output-dir={tmp_path / 'run'}"]
    out, err = listed(capsys, "--training", *action, *part)
    assert out == []
    assert err == "Nothing to do in part 5 of 9: the plan has 3 jobs in all.\n"
    assert not list(tmp_path.iterdir())
    assert our_part(Partition(index=1, total=2), [make_job()]) == ()
    assert capsys.readouterr().err.endswith("the plan has 1 job in all.\n")
