"""Runs of the real command line, each in a fork of one process that has imported the runner already.

    python tests/cli/forked.py FOLDER    runs runner.py for each line on standard input; answers: exit codes

Most of what a short run costs is the import of scipy, matplotlib and the runner, and of torch (``warm.py``).
Each run is a process of its own all the same, with the arguments, folder, environment variables, output and
end that it has otherwise.
"""

import atexit
import functools
import gc
import importlib
import importlib.util
import json
import os
import random
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SLOW = (
    "jinja2",
    "matplotlib.backends.backend_agg",
    "matplotlib.pyplot",
    "pandas",
    "plotly.offline",
    "psutil",
    "rich.progress",
    "rich.table",
    "tabulate",
    "unittest.mock",
)


class Forks:
    """The handle on a process that forks a run for each line."""

    def __init__(self, command: Sequence[str], stderr: int | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        atexit.register(self.close)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def exit_code(self, timeout: float | None = None, **request: Any) -> int:
        """Of the run that is asked for. Raises ``subprocess.TimeoutExpired``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            self.close()
            raise subprocess.TimeoutExpired(str(request), timeout or 0.0)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


class Runs(Forks):
    """Of ``python runner.py``."""

    def __init__(self) -> None:
        super().__init__([sys.executable, str(Path(__file__)), warm_folder().name])

    def run(self, words: Sequence[str], cwd: Path, timeout: float) -> subprocess.CompletedProcess[str]:
        """With these words. Raises ``subprocess.TimeoutExpired``."""
        with tempfile.TemporaryDirectory(prefix="forked-") as place:
            files = {name: str(Path(place, name)) for name in ("output", "errors")}
            code = self.exit_code(timeout, words=words, cwd=str(cwd), environment=dict(os.environ), **files)
            output, errors = (Path(path).read_text() for path in files.values())
        return subprocess.CompletedProcess(list(words), code, output, errors)


@functools.cache
def forks(settings: frozenset[tuple[str, str]]) -> Runs:
    """The process for interpreters with these settings, which they read when they start."""
    return Runs()


@functools.cache
def warm_folder() -> tempfile.TemporaryDirectory[str]:
    """The sockets of ``warm.py``."""
    return tempfile.TemporaryDirectory(prefix="warm-")


def interpreter_settings() -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in os.environ.items() if name.startswith("PYTHON"))


def import_the_runner() -> None:
    """All that runs of the command line import, for forks that then share it."""
    files = [
        path for folder in ("runner", "harness/metrics") for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    ours = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    there = (name for name in SLOW if importlib.util.find_spec(name.partition(".")[0]))
    for name in (*ours, *there):
        importlib.import_module(name.removesuffix(".__init__"))
    assert "torch" not in sys.modules
    gc.collect()
    gc.freeze()


def next_run() -> bool:
    """Serves until there is nothing more to run; comes back as true in each fork, which is to run it."""
    sys.path[0] = str(ROOT)  # as for runner.py itself
    import_the_runner()
    warm = importlib.import_module("tests.cli.warm")
    life, _other_end = os.pipe()  # closed when this process and the last run have ended
    for name in ("runner.plan.probe", "runner.engine.worker_start"):
        warm.fork_instead(importlib.import_module(name), Path(sys.argv[1]), life)
    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            become(json.loads(line))
            return True
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return False


def become(request: dict[str, Any]) -> None:
    """Makes this process what ``python runner.py`` with these words would be."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    random.seed()
    sys.argv = [str(ROOT / "runner.py"), *request["words"]]
    for descriptor, path, mode in (
        (0, os.devnull, os.O_RDONLY),
        (1, request["output"], os.O_WRONLY | os.O_CREAT),
        (2, request["errors"], os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(path, mode, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - as long as the process


if __name__ == "__main__" and next_run():
    runpy.run_path(str(ROOT / "runner.py"), run_name="__main__")
