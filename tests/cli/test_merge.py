"""Two parts of a plan, measured apart and joined, are the whole."""

import json
from pathlib import Path

import pytest

from harness.codec import to_json
from runner.plan.jobs import plan
from tests.cli.command import TOYS, records, runner, statuses
from tests.command_line import config_of_words

FLAGS = ("--training", f"--suites={TOYS}", "--compilers=eager", "-n4")


@pytest.mark.slow
def test_two_parts_joined_are_the_whole(tmp_path: Path) -> None:
    parts = [tmp_path / f"part{i}" for i in range(2)]
    for i, part in enumerate(parts):
        split = ("--total-partitions=2", f"--partition-id={i}")
        assert runner(*FLAGS, *split, "--format=csv", f"--output-dir={part}").returncode == 0
    assert not set(statuses(parts[0])) & set(statuses(parts[1]))

    joined = tmp_path / "joined"
    done = runner("--merge", *map(str, parts), f"--output-dir={joined}")
    assert done.returncode == 0, done.stderr
    assert "Planned but" not in done.stdout

    config = config_of_words(FLAGS)
    whole = plan(config)
    run = json.loads((joined / "run.json").read_text())
    assert run["jobs"] == to_json(whole)
    found = records(joined)
    assert [(r["job"]["case"]["name"], r["candidate"]) for r in found] == [
        (job.case.name, "eager") for job in whole
    ]
    by_key = {json.dumps(r["job"]): r for part in parts for r in records(part)}
    assert all(by_key[json.dumps(r["job"])] == r for r in found)
    assert {path.name for path in (joined / "cases").iterdir()} == {job.key for job in whole}
    assert (joined / "report.md").is_file()

    assert runner("--resume", str(joined)).returncode == 0  # there is nothing left to do
    assert records(joined) == found
