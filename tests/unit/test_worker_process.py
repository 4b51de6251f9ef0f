"""The parent's handle on a worker, tried on small programs that speak the protocol, or fail to."""

import os
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.schema import Status
from runner.engine.worker_process import WorkerLost, WorkerProcess, log_tail
from runner.engine.worker_start import PlainStart
from runner.plan.interpreter import exit_name, worker_environment

PRELUDE = """
import json, os, signal, sys, time
requests, replies, page = map(int, sys.argv[2].split(","))
incoming, outgoing = os.fdopen(requests), os.fdopen(replies, "w")
def reply(text):
    outgoing.write(text + "\\n"); outgoing.flush()
"""


def start(tmp_path: Path, body: str, max_memory_bytes: int | None = None) -> WorkerProcess:
    script = tmp_path / "worker.py"
    script.write_text(PRELUDE + textwrap.dedent(body))
    log = tmp_path / "output.log"
    start_it = PlainStart(command=[sys.executable, str(script)])
    return WorkerProcess(start_it, dict(os.environ), log, lambda activity: None, max_memory_bytes)


PATIENCE_S = 300.0  # of a test that would otherwise hang: a busy machine starts a process late
FOR_EVER_S = 3600  # what nobody waits for


def soon(seconds: float = PATIENCE_S) -> float:
    return time.monotonic() + seconds


def wait_until(seen: Callable[[], bool]) -> None:
    until = soon()
    while not seen():
        assert time.monotonic() < until
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_calls_and_replies(tmp_path: Path) -> None:
    body = """
    for line in incoming:
        if json.loads(line)["call"] == "end": break
        print("noise on stdout {}"); reply(json.dumps({"ok": json.loads(line)}))
    """
    with start(tmp_path, body) as worker:
        for number in range(3):
            assert worker.call({"call": "x", "number": number}, soon())["ok"]["number"] == number
    assert "noise" in (tmp_path / "output.log").read_text()


def test_a_long_reply_comes_whole(tmp_path: Path) -> None:
    with start(tmp_path, 'incoming.readline(); reply(json.dumps({"ok": "x" * 3_000_000}))') as worker:
        assert len(worker.call({"call": "x"}, soon())["ok"]) == 3_000_000


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("incoming.readline(); os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("incoming.readline(); os._exit(3)", "exit 3"),
        ("os._exit(4)", "exit 4"),
        ("incoming.readline(); print('the last words', flush=True); sys.exit(1)", "exit 1"),
    ],
)
def test_a_death_is_named(tmp_path: Path, body: str, kind: str) -> None:
    with start(tmp_path, body) as worker, pytest.raises(WorkerLost) as caught:
        worker.call({"call": "x"}, soon())
    assert caught.value.failure.kind == kind
    assert caught.value.status is Status.CRASH
    if "last words" in body:
        assert "the last words" in caught.value.failure.message


def test_out_of_time_ends_the_whole_process_group(tmp_path: Path) -> None:
    body = f"""
    import subprocess
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep({FOR_EVER_S})"])
    print(os.getpid(), child.pid, flush=True); time.sleep({FOR_EVER_S})
    """
    log = tmp_path / "output.log"
    with start(tmp_path, body) as worker:
        wait_until(lambda: log.read_text().endswith("\n"))
        with pytest.raises(WorkerLost) as caught:
            worker.call({"call": "x"}, soon(0.2))
    assert caught.value.status is Status.TIMEOUT
    assert caught.value.failure.kind == "timeout"
    pids = [int(pid) for pid in log.read_text().split()]
    assert len(pids) == 2
    wait_until(lambda: not any(alive(pid) for pid in pids))


def test_children_that_outlive_the_worker_hold_nobody_up(tmp_path: Path) -> None:
    body = f"""
    import subprocess
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep({FOR_EVER_S})"], close_fds=False)
    open("pid", "w").write(str(child.pid)); incoming.readline(); os._exit(5)
    """
    with start(tmp_path, body) as worker, pytest.raises(WorkerLost) as caught:
        worker.call({"call": "x"}, soon())
    assert caught.value.failure.kind == "exit 5"  # not "timeout": the end of the worker was seen at once
    child = int((tmp_path / "pid").read_text())
    wait_until(lambda: not alive(child))


def test_nothing_is_left_open(tmp_path: Path) -> None:
    before = {path.name for path in Path("/proc/self/fd").iterdir()}
    for _ in range(3):
        with start(tmp_path, "incoming.readline(); reply('{\"ok\": 1}'); incoming.readline()") as worker:
            worker.call({"call": "x"}, soon())
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == before


def test_names_of_exits() -> None:
    assert [exit_name(code) for code in (0, 3, -11, -9, -250)] == [
        "exit 0",
        "exit 3",
        "SIGSEGV",
        "SIGKILL",
        "signal 250",
    ]


def test_the_tail_of_a_log_is_one_printable_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"# by hand: x\nfirst\n\x1b[31m\x00\xffred\nsecond\n")
    tail = log_tail(log)
    assert tail.endswith("second")
    assert tail.isprintable()
    assert log_tail(tmp_path / "none") == ""


def test_the_workers_environment() -> None:
    found = worker_environment(3, {"PYTHONPATH": "/mine", "MALLOC_TOP_PAD_": "7"})
    assert found["OMP_NUM_THREADS"] == "3"
    assert found["PYTHONPATH"].endswith(":/mine")
    assert found["MALLOC_TOP_PAD_"] == "7"  # what the person set is left alone
    assert "MALLOC_TRIM_THRESHOLD_" in found
    assert "OMP_NUM_THREADS" not in worker_environment(None, {})


def test_memory_beyond_the_limit_ends_the_worker_and_what_it_started(tmp_path: Path) -> None:
    body = f"""
    import subprocess
    incoming.readline()
    held = "held = b'x' * 300_000_000; import time; time.sleep({FOR_EVER_S})"
    child = subprocess.Popen([sys.executable, "-c", held])
    print(child.pid, flush=True)
    time.sleep({FOR_EVER_S})
    """
    with start(tmp_path, body, max_memory_bytes=200_000_000) as worker, pytest.raises(WorkerLost) as caught:
        worker.call({"call": "x"}, soon())
    assert caught.value.status is Status.OOM
    assert "--max-memory is 0.2 GB" in str(caught.value)
    child = int((tmp_path / "output.log").read_text().split()[-1])
    wait_until(lambda: not alive(child))  # it is being ended: nobody but the system waits for a grandchild
