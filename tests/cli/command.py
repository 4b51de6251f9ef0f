"""The real command line, as a person types it."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.codec import to_json
from runner.interrupts import ENDING
from runner.store.run_folder import read_run
from tests.cli.forked import forks, interpreter_settings

ROOT = Path(__file__).parents[2]
TOYS = str(ROOT / "tests" / "suites" / "toys.py")
PATIENCE_S = 300.0  # of a test that would otherwise hang
ANIMALS = str(ROOT / "tests" / "zoo" / "animals.py")


def runner(*words: str, cwd: Path = ROOT, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """``python runner.py`` with these words: its exit code and what it printed."""
    return forks(interpreter_settings()).run(words, cwd, timeout)


def run_into(folder: Path, *words: str, code: int = 0, **how: Any) -> subprocess.CompletedProcess[str]:
    """A run with this folder, which must end with this exit code."""
    done = runner(*words, f"--output-dir={folder}", **how)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def refusal(*words: str, **how: Any) -> str:
    """The one sentence that a command must end with, before it prints anything."""
    done = runner(*words, **how)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def begun(
    *words: str | Path, program: str | Path = ROOT / "runner.py", ignored: Sequence[int] = ()
) -> subprocess.Popen[str]:
    """A run in a process of its own, as from a terminal, which ignores only these signals."""

    def as_from_a_terminal() -> None:
        for number in (signal.SIGINT, *ENDING):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    return subprocess.Popen(
        [sys.executable, program, *words],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=as_from_a_terminal,  # noqa: PLW1509 - it only sets signals
    )


def wait_until(seen: Callable[[], object]) -> None:
    """Machines may be busy: only what never comes fails the test."""
    deadline = time.monotonic() + PATIENCE_S
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def records(folder: Path) -> list[dict[str, Any]]:
    """The results of the run, as JSON."""
    return [to_json(record) for record in read_run(folder / "records.jsonl").records]


def statuses(folder: Path) -> dict[tuple[str, str], str]:
    run_records = records(folder)
    by_key = {(r["job"]["case"]["name"], r["candidate"]): r["status"] for r in run_records}
    assert len(by_key) == len(run_records)
    return by_key
