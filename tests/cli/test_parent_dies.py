"""The runner may die at any moment, and Ctrl-C may come at any moment: no result is lost, none comes twice.

The runs are those of the real command line, in a process that is really killed; only the workers
pretend (``tests/cli/instant.py``).
"""

import contextlib
import os
import pty
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.schema import Status
from runner.interrupts import ENDING
from runner.store.joined import Key, key_of
from runner.store.record_file import CUT_SHORT, read_records
from runner.store.run_folder import RECORDS
from tests.cli.command import ANIMALS, PATIENCE_S, ROOT, begun, wait_until
from tests.cli.instant import UNDER_WAY
from tests.cli.instant_runs import FLAGS, INSTANT, Server, processes_in
from tests.command_line import ran
from tests.factories import Patch, known, sampled

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

Numbers = dict[Key, tuple[Status, tuple[float, ...]]]

EXPECTED = {(name, candidate) for name in ("one", "two", "three") for candidate in ("eager", "inductor")}


def whole_run(server: Server, tmp_path: Path) -> tuple[float, Numbers]:
    """Seconds and numbers of a run that nobody kills (the second of two: the first warms caches)."""
    for number in range(2):
        folder = tmp_path / f"whole{number}" / "run"
        began = time.monotonic()
        ended = server.run(*FLAGS, f"--output-dir={folder}")
        assert ended.code == 0, ended.printed
        check_whole(folder, folder.parent / "none")
    return time.monotonic() - began, numbers_in(folder)


def left_in(folder: Path) -> list[int]:
    """The workers that do not end; comes back as soon as there is none."""
    deadline = time.monotonic() + PATIENCE_S
    while (left := processes_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def state_of(folder: Path) -> str:
    """How far the run had come when it was killed."""
    if not (folder / "run.json").exists():
        return "no plan"
    path = folder / "records.jsonl"
    text = path.read_bytes() if path.exists() else b""
    whole = text.count(b"\n")
    torn = "" if text.endswith(b"\n") or not text else ", torn line"
    ended = "" if not (folder / "report.md").exists() else ", reports"
    return f"{whole} records{torn}{ended}"


def numbers_in(folder: Path) -> Numbers:
    return {
        key_of(record): (record.status, known(record.samples).baseline_s)
        for record in read_records(folder / RECORDS).processes
    }


def check_whole(folder: Path, before: Path, unbroken: Numbers | None = None) -> None:
    """Every record once; the file begins with what it was ``before``; every report is there, and whole.

    ``unbroken``: the numbers of a run that nobody killed.
    """
    path = folder / "records.jsonl"
    written = path.read_bytes()
    if before.exists():
        assert written.startswith(before.read_bytes())
    content = read_records(path)
    assert content.damage == ()
    assert {(r.job.case.name, r.candidate) for r in content.records} == EXPECTED
    lines = [line for line in written.splitlines() if not line.endswith(CUT_SHORT)]
    numbers = numbers_in(folder)
    assert len(lines) == len(content.processes) == len(numbers)
    if unbroken is not None:
        assert numbers == unbroken
    names = {file.name for file in folder.iterdir()}
    assert {"run.json", "report.md", "summary.json"} <= names
    assert not [name for name in names if name.endswith(".partial")]


def finish(server: Server, folder: Path, unbroken: Numbers | None = None) -> None:
    """What a person does after a crash, and what must have become of the run then."""
    assert left_in(folder) == [], "workers outlived their runner"
    path = folder / "records.jsonl"
    before = folder.parent / f"{folder.name}-before.jsonl"
    if path.exists():
        before.write_bytes(path.read_bytes())
    torn = state_of(folder)
    if (folder / "run.json").exists():
        ended = server.run("--resume", str(folder))
    else:  # nothing was begun: the same command again
        ended = server.run(*FLAGS, f"--output-dir={folder}")
    assert ended.code == 0, f"{torn}\n{ended.printed}"
    assert "Traceback" not in ended.printed
    assert ended.printed.count("cut short when the run was killed") == ("torn" in torn)
    check_whole(folder, before, unbroken)


def kill_many(server: Server, folder: Path, kills: int, seed: int) -> Counter[str]:
    """Kills so many runs at times spread evenly over their duration, and finishes each.

    Of every fourth run the worker is killed, and the run goes on: its candidate may have failed.
    """
    rng = random.Random(seed)
    whole_s, unbroken = whole_run(server, folder)
    seen: Counter[str] = Counter()
    for number in range(kills):
        run = folder / f"run{number}"
        after = whole_s * (number + rng.random()) / kills
        words = *FLAGS, f"--output-dir={run}"
        if number % 4 == 3:
            ended = server.run(*words, kill_after=after, kill_workers=True)
            if "cannot be listed: it ended Python (SIGKILL)" in ended.printed:
                seen["nothing was begun"] += 1
                continue
            assert ended.code in (0, 1), ended.printed
            content = read_records(run / RECORDS)
            assert sorted((r.job.case.name, r.candidate) for r in content.records) == sorted(EXPECTED)
            assert len({key_of(record) for record in content.processes}) == len(content.processes)
            failed = [record for record in content.records if not record.status.passed]
            seen["a killed worker cost a candidate" if failed else "a killed worker cost none"] += 1
            continue
        ended = server.run(*words, kill_after=after)
        seen[state_of(run) if ended.code == -signal.SIGKILL else "had ended"] += 1
        finish(server, run, unbroken)
    return seen


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_killed_any_time_and_resumed(server: Server, tmp_path: Path, monkeypatch: Patch, seed: int) -> None:
    monkeypatch.setattr(server, "light", False)
    seen: Counter[str] = Counter()
    for number in range(20):  # again where the machine has become faster or slower since its runs were timed
        seen += kill_many(server, tmp_path / f"{number}", 50, seed)
        if len(seen) >= 3:  # it was killed in different states
            print(f"killed and finished: {dict(sorted(seen.items()))}")
            return
    pytest.fail(str(seen))


@pytest.mark.parametrize("number", sampled(4, (2, 1, 4, 6)))
@pytest.mark.slow
def test_killed_in_the_middle_of_writing_a_record(server: Server, tmp_path: Path, number: int) -> None:
    run = tmp_path / "run"
    ended = server.run(*FLAGS, f"--output-dir={run}", tear=number)
    assert ended.code == -signal.SIGKILL
    assert state_of(run) == f"{number - 1} records, torn line"
    finish(server, run)
    again = server.run("--visualize-logs", str(run))
    assert again.code == 0
    assert "cut short" not in again.printed  # it was said once


@pytest.mark.slow
def test_killed_again_while_resuming_in_the_middle_of_a_record(server: Server, tmp_path: Path) -> None:
    run = tmp_path / "run"
    server.run(*FLAGS, f"--output-dir={run}", tear=2)
    for number in (1, 2, 3):  # the mark on the torn line is the first thing that is written
        before = (run / "records.jsonl").read_bytes()
        assert server.run("--resume", str(run), tear=number).code == -signal.SIGKILL
        assert (run / "records.jsonl").read_bytes().startswith(before)
    finish(server, run)


@pytest.mark.parametrize("number", [*range(1, 9), 16, 24, 32, 40, 48])
@pytest.mark.series
def test_killed_at_a_step(server: Server, tmp_path: Path, number: int) -> None:
    """Just before it makes the folder, the plan, the file for records, the first case, the first worker,
    and before some of the steps that follow, up to the reports."""
    run = tmp_path / "run"
    assert server.run(*FLAGS, f"--output-dir={run}", die_at=number).code == -signal.SIGKILL
    finish(server, run)


@pytest.mark.long
def test_killed_at_every_step(server: Server, tmp_path: Path) -> None:
    """Just before each thing that a run does in its folder, until it does nothing more."""
    seen: Counter[str] = Counter()
    for number in range(1, 1000):
        run = tmp_path / f"run{number}"
        ended = server.run(*FLAGS, f"--output-dir={run}", die_at=number)
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL, ended.printed
        seen[state_of(run)] += 1
        finish(server, run)
    print(f"killed and finished: {dict(sorted(seen.items()))}")
    assert sum(seen.values()) > 50
    # before there was a plan, before there was a record, between them, and while the reports were made
    assert {"no plan", "0 records", "2 records", "4 records", "6 records"} <= set(seen), seen


@contextmanager
def started(folder: Path, *words: str, ignored: Sequence[int] = ()) -> Iterator[subprocess.Popen[str]]:
    """A run in a process of its own, as from a terminal. It does not outlive the test."""
    flags = [word for word in FLAGS if not (word == "-n6" and "-n1000" in words)]
    last = "--format=console", f"--output-dir={folder}"
    run = begun(*flags, *words, *last, program=INSTANT, ignored=ignored)
    try:
        yield run
    finally:
        run.kill()
        run.communicate()


def wait_for_call(folder: Path) -> None:
    """Waits until the worker of the model that takes long has been called, not only started."""
    wait_until(lambda: any(folder.rglob(UNDER_WAY)))


def stopped(run: subprocess.Popen[str], folder: Path, number: int) -> tuple[str, str]:
    """What a run prints that this signal ends, while a worker is called."""
    wait_for_call(folder)
    run.send_signal(number)
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in output + errors
    assert left_in(folder) == []
    return output, errors


@pytest.mark.long
@pytest.mark.parametrize("more", [(), ("--no-fork-server",)], ids=["forked", "fresh"])
def test_what_a_model_started_does_not_outlive_a_killed_runner(tmp_path: Path, more: tuple[str, ...]) -> None:
    """A child and a daemon of the model's, with real workers: the runner is gone, what is left ends them."""
    words = ["--training", f"--suites={ANIMALS}", "--only=leaves_both_and_hangs", "--compilers=aot_eager"]
    command = [sys.executable, str(ROOT / "runner.py"), *words, *more, f"--output-dir={tmp_path / 'run'}"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        wait_until(lambda: len(processes_in(tmp_path)) == 3)  # the worker, the child and the daemon
    finally:
        run.kill()
        run.wait()
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.slow
def test_ctrl_c_twice_ends_at_once(tmp_path: Path, processes: str) -> None:
    with started(tmp_path / "run", "--only=one", "--only=hangs", f"--processes={processes}") as run:
        wait_for_call(tmp_path)
        run.send_signal(signal.SIGINT)
        errors = known(run.stderr).readline()
        assert "press Ctrl-C again to stop at once" in errors
        assert run.poll() is None  # it waits for the call under way
        run.send_signal(signal.SIGINT)
        output, more = run.communicate(timeout=PATIENCE_S)
        errors += more
        assert run.returncode == 130
        assert f"--resume {tmp_path / 'run'}" in errors
        assert "Traceback" not in output + errors
        assert left_in(tmp_path) == []
        assert len(read_records(tmp_path / "run" / RECORDS).processes) == 2


@pytest.mark.parametrize("ignored", [(), (signal.SIGINT, signal.SIGQUIT)], ids=["terminal", "script"])
@pytest.mark.slow
def test_ctrl_c_once_ends_after_the_rounds_and_keeps_them(tmp_path: Path, ignored: Sequence[int]) -> None:
    """Also where a shell's script started the run in the background, which ignores these signals."""
    with started(tmp_path / "run", "--only=slow", "-n1000", ignored=ignored) as run:
        output, _ = stopped(run, tmp_path, signal.SIGINT)
        assert run.returncode == 130
        assert output.index("Stopped early") < output.index("slow training float32, inductor:")
        assert f"Stopped early; go on with: python runner.py --resume {tmp_path / 'run'}" in output
        run_records = read_records(tmp_path / "run" / "records.jsonl").records
        assert {r.candidate for r in run_records} == {"eager", "inductor"}
        assert all(r.samples is not None and 0 < len(r.samples) < 1000 for r in run_records)


@pytest.mark.slow
def test_stopped_before_anything_was_measured(tmp_path: Path) -> None:
    building, stopped = tmp_path / "building", tmp_path / "stopped"
    # the first call is the check before the run, the second the worker's: it lasts until Ctrl-C was seen
    (tmp_path / "slow.py").write_text(
        "import time, torch\n"
        "from pathlib import Path\n"
        "def make():\n"
        f"    building, stopped = Path({str(building)!r}), Path({str(stopped)!r})\n"
        "    again = building.exists()\n"
        "    building.write_text('again' if again else 'once')\n"
        "    while again and not stopped.exists(): time.sleep(0.05)\n"
        "    return torch.nn.Linear(2, 2), torch.ones(2, 2)\n"
    )
    words = [f"--model={tmp_path / 'slow.py'}:make", "--training", "--compilers=eager", "-dcpu"]
    with begun(*words, f"--output-dir={tmp_path / 'run'}") as run:
        wait_until(lambda: building.exists() and building.read_text() == "again")
        run.send_signal(signal.SIGINT)
        errors = known(run.stderr).readline()
        stopped.touch()
        output, more = run.communicate(timeout=PATIENCE_S)
        errors += more
    assert run.returncode == 130
    assert "Stopped: nothing was measured yet; go on with: python runner.py --resume" in output
    assert "holds no record" not in output + errors


@pytest.mark.parametrize("number", sampled(3, (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)))
@pytest.mark.slow
def test_a_signal_ends_at_once_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path / "run", "--only=one", "--only=hangs") as run:
        _, errors = stopped(run, tmp_path, number)
        assert run.returncode == 128 + number
        assert errors.endswith("stopped\n")
        assert f"--resume {tmp_path / 'run'}" in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
@pytest.mark.slow
def test_ignored_at_first_signals_end_it_and_nohup_counts(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path / "run", "--only=hangs", ignored=(signal.SIGINT, *ENDING)) as run:
        wait_for_call(tmp_path)
        run.send_signal(signal.SIGHUP)
        stopped(run, tmp_path, number)
        assert run.returncode == 128 + number


@pytest.mark.slow
def test_a_signal_shows_the_cursor_again(tmp_path: Path) -> None:
    parent, child = pty.openpty()
    words = [*FLAGS, "--only=hangs", "--format=console", f"--output-dir={tmp_path / 'run'}"]
    run = subprocess.Popen(
        [sys.executable, INSTANT, *words],
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(child)
    try:
        wait_for_call(tmp_path)
        run.terminate()
        seen = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(parent, 1 << 16):
                seen += part
        assert run.wait(PATIENCE_S) == 128 + signal.SIGTERM
        assert seen.rfind(b"\x1b[?25h") > seen.rfind(b"\x1b[?25l") >= 0
    finally:
        run.kill()
        run.wait()
        os.close(parent)


INTERRUPTED_IMPORT = """
import os, runpy, sys
sys.addaudithook(lambda event, found: event == "import" and found[0] == MODULE and os.kill(os.getpid(), 2))
sys.argv[:] = ["runner.py", "--list"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("module", ["runner.cli.main", "runner.errors"])
def test_ctrl_c_during_the_imports_is_one_word(module: str) -> None:
    program = INTERRUPTED_IMPORT.replace("MODULE", repr(module))
    done = ran(sys.executable, "-c", program, cwd=ROOT)
    assert (done.returncode, done.stderr) == (130, "stopped\n")


@pytest.mark.slow
def test_two_runners_do_not_share_a_folder(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with started(folder, "--only=hangs") as first:
        wait_for_call(tmp_path)
        for words in ([*FLAGS, f"--output-dir={folder}"], ["--resume", str(folder)]):
            ended = server.run(*words)
            assert ended.code == 2
            assert ended.printed.startswith("error: ")
            assert "another" in ended.printed
        first.kill()
        first.communicate(timeout=PATIENCE_S)
        assert left_in(tmp_path) == []
