"""What a run says of its recompilations, kernels and end; two parts of a plan that are joined."""

import json
import re
from pathlib import Path

import pytest

from harness.codec import to_json
from runner.plan.jobs import plan
from tests.cli.command import TOYS, records, run_into, statuses
from tests.cli.instant_runs import FLAGS, SUITE, Server
from tests.command_line import config_of_words


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two compilers of Dynamo in one process, with their graph breaks, recompilations and a trace."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ["--training", f"--suites={TOYS}", "--only=norm", "--compilers=dynamo_eager,aot_eager", "-n6"]
    words += ["--processes=1", "--explain", "--export-profiler-trace", "--threads=1", "--format=csv,md"]
    run_into(folder, *words)
    return folder


@pytest.mark.slow
def test_what_the_shared_process_compiled_again_is_not_said_of_the_model(explained: Path) -> None:
    for record in records(explained):
        assert record["metrics"]["recompiles"] == 0
        assert record["metrics"]["recompile_reasons"] is None
    assert "BACKEND_MATCH" not in (explained / "report.md").read_text()


@pytest.mark.slow
def test_a_trace_lists_operators_and_no_ranges(explained: Path) -> None:
    (compiled,) = [r for r in records(explained) if r["candidate"] == "aot_eager"]
    text = compiled["metrics"]["candidate_kernel_changes"]
    assert "aten::" in text
    assert not re.search(r"CompiledFunction|Cache Lookup|autograd::engine", text)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (["-n6"], "fixed count"),
        (["--protocol=min_rounds=6", "--protocol=max_measure_s=0.000001", "--ci-width=0.01%"], "out of time"),
        (["--protocol=min_rounds=6"], "precise"),
    ],
)
@pytest.mark.series
def test_a_record_says_why_measuring_ended(
    server: Server, limits: list[str], reason: str, tmp_path: Path
) -> None:
    """The workers pretend: their times, and so the end, do not depend on the machine."""
    folder = tmp_path / "run"
    words = ("--inference", f"--suites={SUITE}", "--only=one", "--compilers=eager", "--devices=cpu")
    ended = server.run(*words, *limits, f"--output-dir={folder}")
    assert ended.code == 0, ended.printed
    (record,) = records(folder)
    assert record["rounds_ended"] == reason


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
