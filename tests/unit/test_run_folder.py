"""The folder of a run: no two runs share one, and nothing is written over."""

from pathlib import Path

import pytest

from runner.cli.main import main
from runner.errors import UsageError
from runner.store.record_file import read_records
from runner.store.run_folder import RECORDS, RunFolder, read_run
from runner.store.run_json import RUN
from tests.factories import make_job, make_record


def test_a_new_folder_holds_the_plan(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "deep" / "run", [make_job(), make_job("n")], ["--training"])
    assert folder.jobs() == (make_job(), make_job("n"))
    assert folder.read().records == ()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("run", "--output-dir: .* holds another run; name a new folder, or use --resume"),
        ("files", "holds files already"),
        ("file", "is a file"),
        ("file/below", "cannot be written"),
        ("link", "link is a link to a folder that is not there"),
    ],
)
def test_nothing_is_written_over(tmp_path: Path, path: str, says: str) -> None:
    RunFolder.create(tmp_path / "run", [make_job()], [])
    (tmp_path / "files").mkdir()
    for file in (tmp_path / "file", tmp_path / "files" / "precious.txt"):
        file.write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=says):
        RunFolder.create(tmp_path / path, [make_job()], [])


def test_reopening_what_is_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--visualize-logs: there is no folder"):
        RunFolder.reopen("--visualize-logs", tmp_path / "none")
    with pytest.raises(UsageError, match=r"--resume: there is no records.jsonl in"):
        RunFolder.reopen("--resume", tmp_path)


def test_the_logs_first_line_says_how_to_run_the_job_by_hand(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", [make_job()], [])
    log = folder.open_case(make_job())
    first = log.read_text().splitlines()[0]
    assert first.endswith(f"python -m harness.worker --job {log.parent / 'job.json'}")
    assert folder.open_case(make_job()) == log  # a second worker adds to the same log
    assert log.read_text().count("by hand") == 1


def test_records_come_in_the_order_of_the_plan_or_without_one_in_that_of_the_file(tmp_path: Path) -> None:
    jobs = [make_job(name) for name in ("slow", "fast", "middle")]
    folder = RunFolder.create(tmp_path / "run", jobs, ["--training"])
    for job in (jobs[1], jobs[2], jobs[0]):
        folder.append(make_record(job))

    def names() -> list[str]:
        return [record.job.case.name for record in read_run(folder.path / RECORDS).records]

    assert names() == ["slow", "fast", "middle"]
    in_file = [record.job.case.name for record in read_records(folder.records_path).records]
    assert in_file == ["fast", "middle", "slow"]
    for text in ("[]", "{", '{"jobs": [1]}', '{"jobs": [{"case": {}}]}', '{"jobs": []}'):
        (folder.path / RUN).write_text(text)
        assert names() == in_file
    (folder.path / RUN).unlink()
    assert names() == in_file


def test_a_run_is_not_continued_on_another_processor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_job("m")
    folder = RunFolder.create(tmp_path / "run", (job,), ("x",))
    folder.append(make_record(job, "inductor"))
    assert main(["--resume", str(folder.path)]) == 2
    assert "has results of Synthetic CPU, and this is" in capsys.readouterr().err
