"""The worker process: answers the parent's calls, one JSON line each, over a private pair of pipes.

    {"call": "prepare", "candidate": "inductor"}  ->  {"ok": {...}}
                                                  or  {"failed": {"status": ..., "failure": {...}}}

Standard output and error belong to the model's code; the parent sends them to
the case's log. ``python -m harness.worker --job FILE`` runs one job by hand.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from harness.codec import from_json, to_json
from harness.limits import limit_memory
from harness.orphan import end_with_parent
from harness.schema import Case, Job
from harness.standard_streams import StandardStreams
from harness.status_page import Activity, StatusPage

if TYPE_CHECKING:
    from harness.metrics import ByVariant
    from harness.workload import Workload

KIND = "DUET_WORKER"  # of the environment: harness.host says there how it started this worker


def main(argv: list[str] | None = None) -> int:
    """Replays a job file, or serves the runner's descriptors: then it does not return."""
    parser = argparse.ArgumentParser(prog="python -m harness.worker", description=__doc__)
    parser.add_argument("--job", type=Path, help="run the job in this file and print what it measured")
    parser.add_argument("--pipes", help="three descriptors, used by the runner: requests,replies,status page")
    options = parser.parse_args(argv)
    if options.pipes is not None:
        run(*(int(number) for number in options.pipes.split(",")))
    if options.job is None:
        parser.error("give --job FILE (the runner itself gives --pipes)")
    from harness.replay import replay

    return replay(options.job)


def run(requests: int, replies: int, page: int) -> NoReturn:
    """Serves one job over these descriptors and ends the process."""
    end_with_parent(requests)
    incoming = os.fdopen(requests, encoding="utf-8")
    outgoing = os.fdopen(replies, "w", encoding="utf-8")
    code = 1
    try:
        serve(incoming, outgoing, StatusPage(page).write, StandardStreams().mend)
        code = 0
    except BaseException:  # a pipe that the model's code has closed, for instance
        _log_traceback()
    # threads and pools of libraries may keep an interpreter from ending; nothing is left to save
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
    """Answers calls until the parent closes the pipe or says ``end``."""
    answer: Callable[[dict[str, Any]], Any] | None = None
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
            answer = answers(job, announce)
        try:
            reply = guarded(answer, request)
        except KeyboardInterrupt as error:  # a worker is out of Ctrl-C's reach: the model raised it
            reply = _failed(error, request)
        if os.getpid() != worker:
            os._exit(0)  # the model's code has forked and come back twice: one of us may answer
        outgoing.write(json.dumps(reply, allow_nan=False) + "\n")
        outgoing.flush()


def answers(
    job: Job, announce: Callable[[Activity], None], build: Callable[[Case], Workload] | None = None
) -> Callable[[dict[str, Any]], Any]:
    """What answers the calls of one job. ``build`` stands for the suite's, where there is no suite."""
    from harness.between import HandedSession, answer_between
    from harness.ledger import Ledger  # imports torch, after the parent knows that we live
    from harness.session import Session

    ledger = Ledger(announce)
    session = (HandedSession if job.environments else Session)(job, ledger.announce, build)

    def answer(request: dict[str, Any]) -> Any:
        with ledger.call():
            return answer_between(session, request, answered)

    def answered(request: dict[str, Any]) -> Any:
        call = request["call"]
        if call == "open":
            model, environment = session.open()
            return {"model": model, "environment": environment}
        if call == "prepare":
            status, parity, metrics, notes = session.prepare(request["candidate"])
            calls = session.first_calls_s[request["candidate"]]
            found = {"status": status, "parity": parity, "metrics": metrics, "notes": notes}
            return {**found, "first_calls_s": calls}
        if call == "warm_up":
            session.keep_only(tuple(request["candidates"]))
            metrics, calls_s = session.warm_up(), session.first_calls_s
            latency = {name: session.compilation_latency_s(name) for name in calls_s}
            return {"metrics": metrics, "first_calls_s": calls_s, "compilation_latency_s": latency}
        if call == "measure":
            session.keep_only(tuple(request["candidates"]))
            rounds, recompiled = session.measure(request["rounds"], request["within_s"])
            return {"rounds": rounds, "recompiled": recompiled, "reasons": session.recompilations.reasons}
        if call == "finish":
            changed, of_steps = session.finish()
            return {"changed": changed, "metrics": of_steps}
        if call == "conclude":
            return {"metrics": merged(session.conclude(), ledger.spent())}
        raise ValueError(f"there is no call {call!r}")

    return answer


def merged(first: ByVariant, second: ByVariant) -> ByVariant:
    """The metrics of both, by variant."""
    return {name: {**first.get(name, {}), **second.get(name, {})} for name in {**first, **second}}


def guarded(answer: Callable[[dict[str, Any]], Any], request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one call: ``ok`` with the answer, or ``failed`` with status and failure."""
    from harness.session import JobFailed

    try:
        return {"ok": to_json(answer(request))}
    except JobFailed as failed:
        return {"failed": to_json({"status": failed.status, "failure": failed.failure})}
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _failed(error, request)


def _failed(error: BaseException, request: dict[str, Any]) -> dict[str, Any]:
    from harness.failures import describe_failure, is_out_of_memory
    from harness.schema import Status

    _log_traceback()
    status = Status.OOM if is_out_of_memory(error) else Status.FAIL_TO_RUN
    failure = describe_failure(error, request["call"].replace("_", " "))
    return {"failed": to_json({"status": status, "failure": failure})}


def _log_traceback() -> None:
    from harness.failures import log_traceback  # imports torch

    log_traceback()


if __name__ == "__main__":
    sys.exit(main())
