"""A disk that is full, or cannot be written: one sentence, exit code 2, and nothing is hurt."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner.store.record_file import read_records
from tests.cli.command import ROOT
from tests.cli.instant_runs import FLAGS, INSTANT, Ended, Server, processes_in
from tests.command_line import ran
from tests.factories import sampled

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="mounts, and looks into /proc")


def check_one_sentence(ended: Ended) -> None:
    """What a person reads: one line that says what is wrong and what to do."""
    assert ended.code == 2, ended.printed
    assert "Traceback" not in ended.printed
    errors = [line for line in ended.printed.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, ended.printed


def check_whole_lines(folder: Path) -> int:
    """The number of records; every line is one."""
    path = folder / "records.jsonl"
    if not path.exists():
        return 0
    content = read_records(path)
    assert content.damage == ()
    assert path.read_bytes().count(b"\n") == len(content.processes)
    return len(content.records)


@pytest.mark.slow
def test_files_that_may_not_grow(server: Server, tmp_path: Path) -> None:
    """The limit on a file's size stops the plan, then the records, then only a report."""
    whole = tmp_path / "whole"
    assert server.run(*FLAGS, f"--output-dir={whole}").code == 0
    plan = (whole / "run.json").stat().st_size
    records = (whole / "records.jsonl").stat().st_size
    written = set()
    for limit in (100, plan + 200, records // 2, records - 1500):  # in the last line, whose digits vary
        folder = tmp_path / f"limit{limit}"
        ended = server.run(*FLAGS, f"--output-dir={folder}", largest_file=limit)
        check_one_sentence(ended)
        of_temporary_files = "is the folder of temporary files full, or the size of files limited?"
        assert "File too large" in ended.printed or of_temporary_files in ended.printed
        if not folder.exists():
            continue
        assert processes_in(folder) == []
        written.add(check_whole_lines(folder))
        assert "--resume" in ended.printed
        assert server.run("--resume", str(folder)).code == 0
        assert check_whole_lines(folder) == 6
    assert not (tmp_path / "limit100").exists()
    assert len(written) >= 2


@pytest.mark.slow
def test_without_room_the_report_before_stays_and_numbers_are_shown(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert server.run(*FLAGS, f"--output-dir={folder}").code == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    ended = server.run("--visualize-logs", str(folder), largest_file=2000)
    check_one_sentence(ended)
    assert "Geometric mean speedup" in ended.printed
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert server.run("--visualize-logs", str(folder)).code == 0


@contextmanager
def mounted(tmp_path: Path, kilobytes: int, then: str = "true") -> Iterator[tuple[Server, Path]]:
    """A server with a tiny file system of its own, and where that is. ``then``: a command for the shell
    of that place, ``$1`` being the folder."""
    place = tmp_path / "disk"
    place.mkdir()
    script = f'mount -t tmpfs -o size={kilobytes}k none "$1" && {then} && shift && exec "$@"'
    under = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(place)]
    if shutil.which("unshare") is None or ran(*under, "true").returncode:
        pytest.skip("no file system can be mounted here without privileges")
    server = Server(tmp_path, under)
    try:
        yield server, place
    finally:
        server.close()


@pytest.mark.slow
@LINUX
def test_a_full_disk(tmp_path: Path) -> None:
    with mounted(tmp_path, 256) as (server, place):
        there = server.seen_there(place)
        written = set()
        for room in (0, 12, 24, 36, 48):
            folder, filler = place / f"run{room}", there / "filler"
            filler.write_bytes(bytes((256 - room) * 1024 - 4096 * (room > 0)))
            ended = server.run(*FLAGS, "--processes=1", f"--output-dir={folder}")
            check_one_sentence(ended)
            assert "No space left on device" in ended.printed
            filler.unlink()
            run_path = there / folder.name
            if (run_path / "run.json").exists():
                written.add(check_whole_lines(run_path))
                again = server.run("--resume", str(folder))
            else:
                again = server.run(*FLAGS, f"--output-dir={folder}")
            assert again.code == 0, again.printed
            assert check_whole_lines(run_path) == 6
            assert not [path.name for path in run_path.rglob("*.partial")]
            shutil.rmtree(run_path)
        assert len(written) >= 3  # it ended in different places


@pytest.mark.slow
@LINUX
def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    finished, torn = tmp_path / "finished", tmp_path / "torn"
    server = Server(tmp_path)
    assert server.run(*FLAGS, f"--output-dir={finished}").code == 0
    server.close()
    shutil.copytree(finished, torn)
    with (torn / "records.jsonl").open("r+b") as file:
        file.truncate((torn / "records.jsonl").stat().st_size - 100)
    copy = f'cp -r "{finished}" "{torn}" "$1" && mount -o remount,ro "$1"'
    with mounted(tmp_path, 4000, copy) as (server, place):
        for words in (
            [*FLAGS, f"--output-dir={place / 'new'}"],
            ["--resume", str(place / "torn")],
            ["--resume", str(place / "finished")],
        ):
            ended = server.run(*words)
            check_one_sentence(ended)
            assert "Read-only file system" in ended.printed
        ended = server.run("--visualize-logs", str(place / "finished"))
        check_one_sentence(ended)
        assert "Geometric mean speedup" in ended.printed  # the numbers are shown all the same
        there = server.seen_there(place) / "torn" / "records.jsonl"
        assert there.read_bytes() == (torn / "records.jsonl").read_bytes()


@LINUX
@pytest.mark.parametrize("words", [["--list"], ["--training", "--print-run-commands"]])
def test_output_that_nobody_can_take(words: list[str]) -> None:
    command = [sys.executable, str(ROOT / "runner.py"), *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert done.stderr == "error: standard output cannot be used (No space left on device)\n"
    assert done.returncode == 2


@LINUX
@pytest.mark.slow
def test_a_run_whose_output_nobody_can_take_says_so(tmp_path: Path) -> None:
    command = [sys.executable, INSTANT, *FLAGS, "--only=one", f"--output-dir={tmp_path / 'run'}"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr.startswith("error: standard output cannot be used (No space left on device)")
    assert "--resume" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize("closed", sampled(3, (">&-", "2>&-", "<&- >&- 2>&-")))
@pytest.mark.slow
def test_closed_streams_do_not_change_the_end_of_a_run(tmp_path: Path, closed: str) -> None:
    words = [*FLAGS, "--only=one", "--format=console", f"--output-dir={tmp_path / 'run'}"]
    done = ran("sh", "-c", f'"$@" {closed}', "sh", sys.executable, INSTANT, *words)
    assert (done.returncode, done.stderr) == (0, "")
    content = read_records(tmp_path / "run" / "records.jsonl")
    assert (len(content.records), content.damage) == (2, ())


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, str(ROOT / "runner.py"), "--list"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    os.close(write)
    assert done.stderr == ""
    assert done.returncode == 141
