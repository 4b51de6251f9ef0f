"""The worker process: answers the parent's calls, one JSON line each, over a private pair of pipes.

    {"call": "prepare", "candidate": "inductor"}  ->  {"ok": {...}}
                                                  or  {"failed": {"status": ..., "failure": {...}}}
    A failure with ``"broken": true`` says that the device no longer works in this process. The worker ends.

    open {imported: path, first_data_only: why}
                                  builds the model and runs eager; ``imported``: another worker's export
    prepare {candidate, figures}  compiles a candidate, checks its parity, writes a table to ``figures``
    warm_up {candidates}
    measure {candidates, rounds, within_s}
    measure {candidates, iterations}          one round of a worker that takes turns with others
    finish, conclude {soon}       metrics; ``soon``: without those that need many steps
    trajectory {run, repeat}      trains eager, noisy eager or a candidate for the steps of ``--trajectory``

    export {path}                 reference environment: writes weights, inputs and results of eager
    cross_parity                  other environments: compares their eager with the reference's
    localize {candidate, folder}  finds where a candidate goes wrong; in a worker that opens no session

Standard output and error belong to the model's code; the parent sends them to
the case's log. ``python -m harness.worker --job FILE`` runs one job by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import io
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from harness.codec import from_json, to_json
from harness.devices import CPU, Device, named
from harness.failures import JobFailed, describe_failure, is_out_of_memory, log_traceback
from harness.schema import Job, Status
from harness.worker.limits import importing, limit_memory, use_cpus
from harness.worker.process_cleanup import end_with_parent
from harness.worker.status_page import Activity, PhaseTimes, StatusPage

if TYPE_CHECKING:
    from harness.program import Compilers
    from harness.workload import Build


SPARE = 512  # high, because some code closes all low descriptors


def main(argv: list[str] | None = None) -> int:
    """Replays a job file, or serves the runner's descriptors and does not return."""
    parser = argparse.ArgumentParser(prog="python -m harness.worker", description=__doc__)
    parser.add_argument("--job", type=Path, help="run the job in this file and print what it measured")
    parser.add_argument("--pipes", help="three descriptors, used by the runner: requests,replies,status page")
    options = parser.parse_args(argv)
    if options.pipes is not None:
        run(*(int(number) for number in options.pipes.split(",")))
    if options.job is None:
        parser.error("give --job FILE (the runner itself gives --pipes)")
    return replay(options.job)


def run(requests: int, replies: int, page: int) -> NoReturn:
    """Serves one job over these descriptors and ends the process."""
    end_with_parent(requests)
    use_cpus()
    incoming = os.fdopen(requests, encoding="utf-8")
    outgoing = os.fdopen(replies, "w", encoding="utf-8")
    code = 1
    try:
        serve(incoming, outgoing, StatusPage(page).write, StandardStreams().mend)
        code = 0
    except BaseException:  # for instance, the model's code has closed a pipe
        log_traceback()
    # threads and process pools of libraries can block a normal exit, and there is nothing left to save
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def serve(
    incoming: IO[str],
    outgoing: IO[str],
    announce: Callable[[Activity], None],
    before_each: Callable[[], None] = lambda: None,
) -> None:
    """Answers calls until the parent closes the pipe or says ``end``, or until the device is broken."""
    answer: Callable[[dict[str, Any]], Any] | None = None
    device = CPU
    worker = os.getpid()
    for line in incoming:
        before_each()
        request = json.loads(line)
        if request["call"] == "end":
            return
        if answer is None:
            announce(Activity(phase="import"))
            job = from_json(Job, request["job"])
            limit_memory(job)
            with importing():
                answer, device = Answers(job, announce), named(job.device)
                gc.freeze()  # no later collection visits what was imported
        try:
            reply = guarded(answer, request, device)
        except KeyboardInterrupt as error:  # Ctrl-C does not reach a worker, so the model's code raised it
            reply = _failed(error, request)
        if os.getpid() != worker:
            os._exit(0)  # the model's code has forked and returned in the child, too: only one may answer
        outgoing.write(json.dumps(reply, allow_nan=False) + "\n")
        outgoing.flush()
        if reply.get("failed", {}).get("broken"):
            return


class Answers:
    """Answers the calls of one job. Each call is a public method, with the request's arguments.

    ``build`` replaces the suite's function; ``compilers`` are compilers that have no file. Both are for
    ``torchduet.compare()``.
    """

    def __init__(
        self,
        job: Job,
        announce: Callable[[Activity], None],
        build: Build | None = None,
        compilers: Compilers | None = None,
    ) -> None:
        from harness.worker.session import Session  # imports torch: after the first announcement

        self._given = job, build, compilers
        self._times = PhaseTimes(announce)
        self._session = Session(job, self._times.announce, build, compilers)

    def __call__(self, request: Mapping[str, Any]) -> Any:
        call = request["call"]
        method = None if call.startswith("_") else getattr(self, call, None)
        if method is None:
            raise ValueError(f"there is no call {call!r}")
        arguments = {name: value for name, value in request.items() if name not in ("call", "job")}
        with self._times.call():
            return method(**arguments)

    def open(self, imported: str | None = None, first_data_only: str = "") -> Any:
        model, environment = self._session.open(_path(imported), first_data_only)
        return {"model": model, "environment": environment, "controls": self._session.controls}

    def export(self, path: str) -> None:
        self._session.export(Path(path))

    def cross_parity(self) -> Any:
        status, parity, notes = self._session.cross_parity()
        return {"status": status, "parity": parity, "notes": notes}

    def prepare(self, candidate: str, figures: str | None = None) -> Any:
        status, parity, metrics, notes = self._session.prepare(candidate, _path(figures))
        return {
            "status": status,
            "parity": parity,
            "metrics": metrics,
            "notes": notes,
            "first_calls_s": self._session.first_calls_s[candidate],
            "numerics": self._session.numerics.get(candidate),
        }

    def warm_up(self, candidates: Sequence[str]) -> Any:
        session = self._session
        session.keep_only(tuple(candidates))
        metrics, calls_s = session.warm_up(), session.first_calls_s
        latency = {name: session.compilation_latency_s(name) for name in calls_s}
        return {"metrics": metrics, "first_calls_s": calls_s, "compilation_latency_s": latency}

    def preview(self, candidate: str, rounds: int) -> Any:
        return {"rounds": self._session.preview(candidate, rounds), "recompiled": {}}

    def measure(
        self,
        candidates: Sequence[str],
        rounds: int = 1,
        within_s: float = math.inf,
        iterations: int | None = None,
        resting: Sequence[str] = (),
    ) -> Any:
        session = self._session
        session.keep_only(tuple(candidates))
        if iterations is None:
            timed, recompiled = session.measure(rounds, within_s, resting)
        else:
            timed, recompiled = session.take_turn(iterations)
        return {"rounds": timed, "recompiled": recompiled, "reasons": session.recompilations.reasons}

    def finish(self, *, soon: bool = False) -> Any:
        changed, of_steps, failed = self._session.finish(soon=soon)
        return {"changed": changed, "metrics": of_steps, "late_failures": failed}

    def conclude(self, *, soon: bool = False) -> Any:
        metrics = self._session.conclude(soon=soon)
        for name, numbers in self._times.spent().items():
            metrics.setdefault(name, {}).update(numbers)
        return {"metrics": metrics}

    def trajectory(self, run: str, repeat: int = 0) -> Any:
        return self._session.trajectory(run, repeat)

    def localize(self, candidate: str, folder: str | None = None) -> Any:
        from harness.worker.localize.search import localize

        job, build, compilers = self._given
        return localize(job, candidate, _path(folder), build, compilers, self._times.announce)


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def guarded(
    answer: Callable[[dict[str, Any]], Any], request: dict[str, Any], device: Device
) -> dict[str, Any]:
    """The reply to one call: ``ok`` with the answer, or ``failed`` with status and failure.

    After some errors (an illegal address, an assertion in a kernel) every later call to the device fails in
    this process. The failure then says ``broken``: other candidates need another worker.
    """
    try:
        return {"ok": to_json(answer(request))}
    except JobFailed as failed:
        reply = {"failed": to_json({"status": failed.status, "failure": failed.failure})}
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        reply = _failed(error, request)
    if device.accelerated and not device.healthy():
        reply["failed"]["broken"] = True
    return reply


def _failed(error: BaseException, request: dict[str, Any]) -> dict[str, Any]:
    log_traceback()
    status = Status.OOM if is_out_of_memory(error) else Status.FAIL_TO_RUN
    failure = describe_failure(error, request["call"].replace("_", " "))
    return {"failed": to_json({"status": status, "failure": failure})}


def replay(path: Path) -> int:
    """Runs one job in this process, to investigate a single number. 0, or 1 when something failed.

    Prints a JSON line for each step of the job at ``path``.
    """
    from harness.worker.session import Session

    job = from_json(Job, json.loads(path.read_text(encoding="utf-8")))

    def tell(activity: Activity) -> None:
        if activity.phase in ("build", "compile", "check"):
            print(f"# {activity.phase} {activity.variant}".rstrip(), file=sys.stderr, flush=True)

    session = Session(job, tell)
    ready = []
    try:
        model, _ = session.open()
        _print({"model": model.parameters, "inputs": list(model.input_shapes)})
        for candidate in job.candidates:
            try:
                status, _, metrics, _ = session.prepare(candidate)
            except JobFailed as failed:
                _print({"candidate": candidate, "status": failed.status.value, "why": str(failed)})
                continue
            ready.append(candidate)
            _print({"candidate": candidate, "status": status.value, **metrics})
        if job.protocol.performance:
            _print(session.warm_up())
            rounds, _ = session.measure(job.protocol.repeat or job.protocol.min_rounds)
            for timed in rounds:
                _print({"order": timed.order, "seconds": timed.seconds})
    except JobFailed as failed:
        _print({"status": failed.status.value, "why": str(failed)})
        return 1
    return 0 if len(ready) == len(job.candidates) else 1


def _print(value: object) -> None:
    print(json.dumps(value), flush=True)


class StandardStreams:
    """Copies of the present standard output and error, from which ``mend`` restores them.

    They belong to the model's code. What it closes is reopened between calls.
    """

    def __init__(self) -> None:
        self._spares = [_spare(number) for number in (1, 2)]

    def mend(self) -> None:
        """Reopens closed descriptors, and replaces stream objects that are closed or not files."""
        for number, spare in zip((1, 2), self._spares, strict=True):
            try:
                os.fstat(number)
            except OSError:
                with contextlib.suppress(OSError):
                    os.dup2(spare, number)
        sys.stdout = _usable(sys.stdout, sys.__stdout__, 1)
        sys.stderr = _usable(sys.stderr, sys.__stderr__, 2)


def _spare(number: int) -> int:
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, SPARE)
    except OSError:  # the limit of descriptors is below SPARE
        return os.dup(number)


def _usable(now: object, first: object, number: int) -> io.TextIOBase:
    for stream in (now, first):
        if isinstance(stream, io.TextIOBase) and not stream.closed:
            return stream
    return open(number, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
