"""Two parts of a plan, measured apart and joined, are the whole."""

import json
from pathlib import Path

import pytest

from harness.codec import to_json
from runner.plan.jobs import plan
from tests.cli.command import records, statuses
from tests.cli.instant_runs import FLAGS, Server
from tests.command_line import config_of_words


@pytest.mark.slow
def test_two_parts_joined_are_the_whole(server: Server, tmp_path: Path) -> None:
    parts = [tmp_path / f"part{i}" for i in range(2)]
    for i, part in enumerate(parts):
        split = ("--total-partitions=2", f"--partition-id={i}")
        assert server.run(*FLAGS, *split, "--format=csv", f"--output-dir={part}").code == 0
    assert not set(statuses(parts[0])) & set(statuses(parts[1]))

    joined = tmp_path / "joined"
    done = server.run("--merge", *map(str, parts), f"--output-dir={joined}")
    assert done.code == 0, done.printed
    assert "Planned but" not in done.printed

    config = config_of_words(FLAGS)
    whole = plan(config)
    run = json.loads((joined / "run.json").read_text())
    assert run["jobs"] == to_json(whole)
    run_records = records(joined)
    assert [(r["job"]["case"]["name"], r["candidate"]) for r in run_records] == [
        (job.case.name, candidate) for job in whole for candidate in job.candidates
    ]
    measured = [r for part in parts for r in records(part)]
    assert all(r in measured for r in run_records)
    assert {path.name for path in (joined / "cases").iterdir()} == {job.key for job in whole}
    assert (joined / "report.md").is_file()

    assert server.run("--resume", str(joined)).code == 0  # there is nothing left to do
    assert records(joined) == run_records
