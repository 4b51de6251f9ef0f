"""The parent's handle on a worker, tried on small programs that speak the protocol, or fail to."""

import errno
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.failures import exit_name
from harness.schema import BASELINE, Job, Record, Status
from runner.engine import JobContext, Place, launch, worker_process
from runner.engine.experiments import Attempt
from runner.engine.replies import INVALID, LONGEST_LINE
from runner.engine.worker_process import (
    CUT,
    KEPT,
    LONGEST_LOG,
    WorkerLost,
    WorkerProcess,
    log_tail,
    shorten,
    was_shortened,
)
from runner.engine.worker_start import PlainStart
from runner.plan.interpreter import worker_environment
from tests.cli.command import PATIENCE_S, wait_until
from tests.factories import Patch, known, make_job, make_record
from tests.unit.test_execute import Script, run

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


FOR_EVER_S = 3600  # what nobody waits for


def soon(seconds: float = PATIENCE_S) -> float:
    return time.monotonic() + seconds


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
    names = {0: "exit 0", 3: "exit 3", -11: "SIGSEGV", -9: "SIGKILL", -250: "signal 250"}
    assert {code: exit_name(code) for code in names} == names


def test_the_tail_of_a_log_is_one_printable_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"# by hand: x\nfirst\n\x1b[31m\x00\xffred\nsecond\n")
    tail = log_tail(log)
    assert tail.endswith("second")
    assert tail.isprintable()
    assert log_tail(log, log.stat().st_size - len("second\n")) == "second"  # of an earlier call is not told
    assert log_tail(tmp_path / "none") == ""


def test_the_workers_environment() -> None:
    variables = worker_environment(3, {"PYTHONPATH": "/mine", "MALLOC_TOP_PAD_": "7"})
    assert variables["OMP_NUM_THREADS"] == "3"
    assert variables["PYTHONPATH"].endswith(":/mine")
    paths = worker_environment(None, {"PYTHONPATH": f"src{os.pathsep}../other"})["PYTHONPATH"]
    assert paths.split(os.pathsep)[-2:] == [str(Path.cwd() / "src"), str(Path.cwd().parent / "other")]
    assert variables["MALLOC_TOP_PAD_"] == "7"  # what the person set is left alone
    assert "MALLOC_TRIM_THRESHOLD_" in variables
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


# -- what a model can write where its worker writes --------------------------------------------
@pytest.mark.parametrize(
    ("wrote", "why"),
    [
        *(("'[' * 200_000", "not JSON"), ("""'{"ok": NaN}'""", "the number NaN")),
        *(("""'{"ok": ' + '9' * 4000 + '}'""", "4000 digits"), ("""'{"ok": ' + '9' * 20_000 + '}'""", "")),
        *(("'{}'", "not a reply"), ("'\\0\\udcff'", "")),
        (f"'x' * {LONGEST_LINE + (1 << 20)}", "longer than 16 MiB"),
    ],
)
def test_what_is_no_reply_costs_the_worker(tmp_path: Path, wrote: str, why: str) -> None:
    body = f"incoming.readline(); outgoing.reconfigure(errors='surrogateescape'); reply({wrote})"
    with start(tmp_path, f"{body}; time.sleep({FOR_EVER_S})") as worker:
        with pytest.raises(WorkerLost) as caught:
            worker.call({"call": "x"}, soon())
        assert worker._process.poll() is not None
    assert (caught.value.status, caught.value.failure.kind) == (Status.CRASH, INVALID)
    assert why in caught.value.failure.message


PREPARED: dict[str, Any] = {"status": "pass", "parity": None, "notes": []}
BOTH = {"a": 1.0, BASELINE: 1.0}


def measured_as(**changes: Any) -> Any:
    timed = {"order": [*BOTH], "seconds": BOTH, "minor_faults": BOTH, **changes}
    return {"ok": {"rounds": [timed], "recompiled": {}}}


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        *(("open", {"ok": [1]}), ("prepare a", {"ok": {}})),
        ("prepare a", {"ok": {**PREPARED, "metrics": {"x": [1]}}}),
        ("prepare a", {"failed": {"status": "splendid", "failure": {}}}),
        *(("warm_up", {"ok": {"metrics": 1}}), ("measure", {"ok": {"rounds": 3, "recompiled": {}}})),
        ("measure", measured_as(seconds={"a": "nan", BASELINE: 1.0})),
        *(("measure", measured_as(order=["z"])), ("measure", {"ok": {"rounds": [], "recompiled": [0]}})),
    ],
)
def test_a_reply_of_another_shape_costs_one_candidate(call: str, reply: Any) -> None:
    name, _, candidate = call.partition(" ")
    (record,) = run(Script({(1, name, candidate): reply}), ("a",))
    failure = known(record.failure)
    assert (record.status, failure.kind) == (Status.CRASH, INVALID)
    assert "cannot be used" in failure.message


# -- the runner itself ------------------------------------------------------------------
def measured(monkeypatch: Patch, folder: Path, records: Callable[[Job], Iterator[Record]]) -> list[Record]:
    monkeypatch.setattr(launch, "attempted", lambda attempt, *_: records(attempt.job))
    log = folder / "cases" / "x" / "output.log"
    job = make_job(candidates=("a", "b", "c"))
    place = Place(logs={"": "cases/x/output.log"})
    context = JobContext(candidates=job.candidates, place=place, reproduce=lambda *_: "again")
    return [*launch.measure(Attempt(job, job.candidates), (), context, log)]


def test_an_exception_of_this_program_is_the_record_of_its_job(monkeypatch: Patch, tmp_path: Path) -> None:
    def fails(job: Job) -> Iterator[Record]:
        yield make_record(job, "a")
        raise ZeroDivisionError("no\nwords")

    records = measured(monkeypatch, tmp_path, fails)
    assert [record.status for record in records] == [Status.PASS, *[Status.INFRA_ERROR] * 2]
    failure = known(records[2].failure)
    assert failure.message.isprintable()
    assert "ZeroDivisionError" in (tmp_path / str(failure.log)).read_text()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_what_ends_the_run_is_no_record(monkeypatch: Patch, tmp_path: Path, error: BaseException) -> None:
    def ends(job: Job) -> Iterator[Record]:
        yield make_record(job, "a")
        raise error

    with pytest.raises(type(error)):
        measured(monkeypatch, tmp_path, ends)


# -- the log ----------------------------------------------------------------------------
def test_of_a_long_log_both_ends_are_kept(monkeypatch: Patch, tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    with log.open("wb") as file:
        file.write(b"# by hand: x\n")
        file.seek(LONGEST_LOG)
        file.write(b"the last words")
    with log.open("ab", buffering=0) as worker:  # which appends meanwhile
        assert not was_shortened(log)
        shorten(log)
        worker.write(b", and more")
    assert log.stat().st_size == 2 * KEPT + len(CUT + b", and more")
    assert log.read_bytes().startswith(b"# by hand: x\n")
    assert log.read_bytes().endswith(b"the last words, and more")
    assert was_shortened(log)
    monkeypatch.setattr(launch, "was_shortened", lambda _: True)
    (record, *_) = measured(monkeypatch, tmp_path, lambda job: iter([make_record(job, "a")]))
    assert record.notes[-1] == launch.LONG_LOG


@pytest.mark.slow
def test_a_log_is_cut_while_the_worker_prints(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setattr(worker_process, "LONGEST_LOG", 3 * KEPT)
    body = "incoming.readline(); [print('x' * 99_999) for _ in range(60)]; reply('{\"ok\": 1}')"
    with start(tmp_path, body) as worker:
        worker.call({"call": "x"}, soon())
    assert (tmp_path / "output.log").stat().st_size <= 3 * KEPT
