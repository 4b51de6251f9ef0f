"""``benchmarks/headline.py``: several processes share the parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import headline


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
