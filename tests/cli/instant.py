"""The real command line with workers that answer at once and need no torch.

    python tests/cli/instant.py [runner's flags]      one run
    python tests/cli/instant.py --serve               runs asked for on standard input, each a fork of this
                                                      process, which has the slow libraries imported already

A run can be made to kill itself as ``SIGKILL`` would: at its n-th use of a file of the run folder, or in
the middle of writing its n-th record.
"""

import io
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # this file is started as a script, by the tests and by the runner

from harness.codec import to_json  # noqa: E402
from harness.schema import BASELINE, Job, ModelFacts, Round, Status  # noqa: E402

STEP_S = 0.001
UNDER_WAY = "under_way"  # the file that "hangs" and "slow" make in the worker's folder when called
FILE_EVENTS = ("open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.truncate", "subprocess.Popen")


# -- the worker -----------------------------------------------------------------
def work() -> None:
    """The real worker's ``main`` and conversation, with answers that are made up."""
    from harness.worker import main

    replaced: Any = main
    replaced.Answers = lambda job, announce, *_, **__: Pretender(job, announce)
    replaced.guarded = lambda answer, request, device: {"ok": to_json(answer(request))}
    main.main()


class Pretender:
    """Answers as ``harness.worker.session`` would, for a model that always passes."""

    def __init__(self, job: Job, announce: Callable[[Any], None]) -> None:
        self._job = job

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name = self._job.case.name
        call = request["call"]
        if call == "open":
            facts = ModelFacts(parameters=1, parameter_bytes=4, input_shapes=("x: float32[4]",), batch_size=4)
            return {"model": facts, "environment": {}}
        if call == "prepare":
            if name == "hangs":
                Path(UNDER_WAY).touch()
                time.sleep(600)
            return {"status": Status.PASS, "parity": None, "metrics": {}, "notes": []}
        if call == "preview":
            return {"rounds": [self._round(i) for i in range(request["rounds"])], "recompiled": {}}
        if call == "measure":
            if name == "slow":
                Path(UNDER_WAY).touch()
                time.sleep(1)
            return {"rounds": [self._round(i) for i in range(request["rounds"])], "recompiled": {}}
        return {"metrics": {"iterations_per_sample": 1} if call == "warm_up" else {}}

    def _round(self, number: int) -> Round:
        variants = (BASELINE, *self._job.candidates)
        seconds = dict.fromkeys(variants, STEP_S * (1 + 0.01 * (number * 7 % 5)))
        if self._job.case.name != "one":  # whose verdict one process closes
            seconds[BASELINE] *= 1 + 0.01 * (self._job.protocol.process * 3 % 4)
        if self._job.case.name == "unlucky" and self._job.protocol.process < 2:
            seconds.update({name: 2 * seconds[name] for name in self._job.candidates})
        return Round(order=variants, seconds=seconds, minor_faults=dict.fromkeys(variants, 0.0))


# -- the runner -----------------------------------------------------------------
def run(argv: list[str], die_at: int = 0, tear: int = 0, *, light: bool = False) -> int:
    """``runner.py`` with these workers, and its exit code; ``light``: without the reports that take long."""
    from unittest import mock

    import runner.engine.executors.local
    import runner.engine.launch
    from runner.cli.main import main
    from runner.engine.worker_start import PlainStart

    command = [sys.executable, "-S", str(Path(__file__).resolve())]
    start = PlainStart(command=command)
    mock.patch.object(runner.engine.launch, "fresh_start", return_value=start).start()
    mock.patch.object(runner.engine.executors.local, "forking_works", return_value=False).start()
    if die_at:
        _die_at(die_at, argv[-1].removeprefix("--output-dir=").removeprefix("--resume="))
    if tear:
        _tear(tear)
    if light:
        _leave_out("html", "plot")
    return main(argv)


def _die_at(number: int, folder: str) -> None:
    """Kills this process just before it does something in the folder, or starts a worker, the n-th time."""
    seen = 0
    owner = os.getpid()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event not in FILE_EVENTS or os.getpid() != owner:
            return
        if event == "subprocess.Popen" or folder in str(arguments[:2]):
            seen += 1
            if seen == number:
                os.kill(owner, signal.SIGKILL)

    sys.addaudithook(hook)


def _tear(number: int) -> None:
    """Kills this process when half of the n-th record is written."""
    import runner.store.record_file

    whole = runner.store.record_file.write_all
    written = 0

    def half(file: io.FileIO, data: bytes) -> None:
        nonlocal written
        written += str(file.name).endswith("records.jsonl")
        if written == number:
            whole(file, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        whole(file, data)

    runner.store.record_file.write_all = half


def _leave_out(*endings: str) -> None:
    import runner.reports

    kept = tuple(m for m in runner.reports.discover() if not m.__name__.endswith(endings))
    runner.reports.discover = lambda: kept


# -- many runs ------------------------------------------------------------------
def serve() -> None:
    """One request a line: argv, output, kill_after (seconds), kill_workers (not the run), die_at, tear,
    light, largest_file (bytes). Answers with the exit code.
    """
    from tests.cli.forked import import_the_runner

    import_the_runner()
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        printed, printing = os.pipe()  # no file: a run that may write no more to files still prints
        pid = os.fork()
        if pid == 0:
            _forked(request, printing)
        os.close(printing)
        if request["kill_after"] is not None:
            time.sleep(request["kill_after"])
            # it may have ended; the number is its own until we have waited
            for number in _workers_of(pid) if request["kill_workers"] else (pid,):
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
        with os.fdopen(printed, "rb") as output:
            Path(request["output"]).write_bytes(output.read())
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _workers_of(runner: int) -> list[int]:
    """The processes that any of the run's threads has started."""
    numbers = list[int]()
    for children in Path(f"/proc/{runner}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            numbers += map(int, children.read_text().split())
    return numbers


def _forked(request: Mapping[str, Any], printing: int) -> None:
    code = 70
    try:
        with open(os.devnull) as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), 0)
        os.dup2(printing, 1)
        os.dup2(printing, 2)
        if request["largest_file"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["largest_file"], request["largest_file"]))
        code = run(request["argv"], request["die_at"], request["tear"], light=request["light"])
        sys.stdout.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if "--pipes" in sys.argv:
        work()
    elif sys.argv[1:] == ["--serve"]:
        serve()
    else:
        sys.exit(run(sys.argv[1:]))
