"""Workers forked from a host that has imported everything: as good as fresh ones, and started in no time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.codec import to_json
from harness.schema import Protocol
from runner.engine.worker_process import WorkerLost, WorkerProcess
from runner.engine.worker_start import ForkedStart, HostPool, forking_works
from runner.plan.interpreter import worker_environment
from tests.cli.command import PATIENCE_S, ROOT, TOYS, records, run_into, wait_until
from tests.command_line import ran
from tests.factories import Patch, make_job

pytestmark = pytest.mark.skipif(not forking_works(), reason="this system cannot fork and watch workers")


@pytest.fixture(scope="module")
def pool() -> Iterator[HostPool]:
    with HostPool() as hosts:
        yield hosts


def variables() -> dict[str, str]:
    """Without pytest's own, which has another value in each test: the tests share a host."""
    ours = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return worker_environment(1, ours)


def started(pool: HostPool, folder: Path) -> WorkerProcess:
    start = ForkedStart(pool=pool, suite=TOYS)
    return WorkerProcess(start, variables(), folder / "output.log", lambda activity: None)


def opening() -> dict[str, object]:
    job = make_job("linear", suite=TOYS, candidates=("eager",), protocol=Protocol(threads=1))
    return {"call": "open", "job": to_json(job)}


def soon() -> float:
    return time.monotonic() + PATIENCE_S


def test_a_second_worker_comes_from_the_same_host(pool: HostPool, tmp_path: Path) -> None:
    """Also after the thread of the first has ended, as with each pass of a run."""

    def host_of_the_first() -> object:
        with started(pool, tmp_path) as first:
            assert first.call(opening(), soon())["ok"]["environment"]["worker"] == "forked"
            return first._process._host  # type: ignore[union-attr]

    with ThreadPoolExecutor(1) as lane:
        host = lane.submit(host_of_the_first).result()
    with started(pool, tmp_path) as second:
        assert second._process._host is host  # type: ignore[union-attr]
        assert second.call(opening(), soon())["ok"]["model"]["parameters"] > 0


@pytest.mark.parametrize("lacks", ["del os.pidfd_open", "os.pidfd_open = lambda _: os.stat('/not there')"])
def test_an_interpreter_that_cannot_watch_workers_has_no_host(tmp_path: Path, lacks: str) -> None:
    """Anaconda's Python, which ``--envs`` may name, has no ``os.pidfd_open``; on an old kernel it fails."""
    (tmp_path / "sitecustomize.py").write_text(f"import os; {lacks}")
    theirs = variables()
    theirs["PYTHONPATH"] = os.pathsep.join((str(tmp_path), theirs["PYTHONPATH"]))
    with WorkerProcess(ForkedStart(), theirs, tmp_path / "output.log", lambda activity: None) as worker:
        assert isinstance(worker._process, subprocess.Popen)


@pytest.mark.slow
def test_the_host_has_imported_the_session_and_all_it_needs() -> None:
    """Otherwise each forked worker imports it again, which doubles the start of a job."""
    code = (
        "import sys; from harness.worker.host import _import_torch; _import_torch(); "
        "before = {*sys.modules}; "
        "import harness.worker.main, harness.worker.session; "
        "print(*sorted({*sys.modules} - before))"
    )
    done = ran(sys.executable, "-c", code, cwd=ROOT)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


@pytest.mark.slow
def test_a_host_that_was_killed_is_replaced(pool: HostPool, tmp_path: Path) -> None:
    environment = variables()
    start = ForkedStart(pool=pool, suite=TOYS)
    host = pool.take(start.python, environment)
    os.kill(host._process.pid, signal.SIGKILL)
    host._process.wait()
    pool.give_back(start.python, environment, host)
    with started(pool, tmp_path) as worker:
        assert "ok" in worker.call(opening(), soon())


@pytest.mark.slow
def test_a_worker_does_not_outlive_its_host(pool: HostPool, tmp_path: Path) -> None:
    with started(pool, tmp_path) as worker:
        worker.call(opening(), soon())
        process = worker._process
        host = process._host._process  # type: ignore[union-attr]
        host.kill()
        host.wait()
        with pytest.raises(WorkerLost):
            worker.call({"call": "warm_up", "candidates": ["eager"]}, soon())
    wait_until(lambda: not Path(f"/proc/{process.pid}/exe").exists())


@pytest.mark.slow
def test_threads_and_compilers_processes_work_after_forks(tmp_path: Path, monkeypatch: Patch) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name)
    words = ("--training", f"--suites={TOYS}", "--only=norm", "--compilers=inductor", "-n4", "-dcpu")
    run_into(tmp_path / "run", *words, "--processes=1", "--format=csv")
    (record,) = records(tmp_path / "run")
    environment = record["environment"]
    assert (record["status"], environment["worker"]) == ("pass", "forked")
    fresh = ran(sys.executable, "-c", "import torch; print(torch.get_num_threads())")
    assert environment["threads"] == int(fresh.stdout)
