"""``benchmarks/headline.py``: several processes share the parts."""

from pathlib import Path

import pytest

from benchmarks import headline
from harness.schema import Status
from runner.store.record_file import append_record
from tests.factories import make_job, make_record


def test_a_part_is_measured_by_one_process(tmp_path: Path) -> None:
    part, other = tmp_path / "part-00", tmp_path / "part-01"
    with headline.taken(part) as first, headline.taken(part) as second, headline.taken(other) as third:
        assert (first, second, third) == (True, False, True)
    with headline.taken(part) as again:
        assert again


def test_the_parts_that_others_measure_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured: list[int] = []

    def measure(folder: Path, number: int, parts: int, devices: str) -> None:
        measured.append(number)
        folder.mkdir()

    def program(*flags: str) -> None:
        raise AssertionError(f"joined before all parts were complete: {flags}")

    monkeypatch.setattr(headline, "measure", measure)
    monkeypatch.setattr(headline, "program", program)
    monkeypatch.setattr("sys.argv", ["headline.py", "--keep", str(tmp_path), "--parts", "3"])
    with headline.taken(tmp_path / "part-01"):
        assert headline.main() == 0
    assert measured == [0, 2]
    assert "1 of 3 parts are left" in capsys.readouterr().out


def test_complete_parts_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[tuple[str, ...]] = []
    monkeypatch.setattr(headline, "measure", lambda folder, *_: folder.mkdir())
    monkeypatch.setattr(headline, "program", lambda *flags: joined.append(flags))
    monkeypatch.setattr("sys.argv", ["headline.py", "--keep", str(tmp_path), "--parts", "2"])
    assert headline.main() == 0
    parts = (str(tmp_path / "part-00"), str(tmp_path / "part-01"))
    assert joined == [("--merge", *parts, f"--output-dir={tmp_path / 'merged'}")]


def test_the_tables_count_each_job_once_and_name_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(2):  # the same jobs in both runs
        (tmp_path / f"part-{number}").mkdir()
        for speedup, name in ((1.5, "fast"), (0.8, "slow")):
            record = make_record(make_job(name), "inductor", speedup=speedup)
            append_record(tmp_path / f"part-{number}" / "records.jsonl", record)
    failed = make_record(make_job("broken"), "inductor", status=Status.CRASH)
    append_record(tmp_path / "part-1" / "records.jsonl", failed)
    monkeypatch.setattr("sys.argv", ["headline.py", "--tables", str(tmp_path)])
    assert headline.main() == 0
    averages, costs, fastest, slowest, failures = capsys.readouterr().out.split("\n\n|")[-5:]
    assert "| 2/3 [" in averages
    assert "n 2 " in averages
    assert "0 of 3" in costs
    for lines, names in ((fastest, ["fast", "slow"]), (slowest, ["slow", "fast"])):
        assert [line.split()[1] for line in lines.splitlines()[2:]] == names
    assert "broken" in failures
    assert "crash" in failures
