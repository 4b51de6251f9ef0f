"""The worker process: answers the parent's calls, one JSON line each, over a private pair of pipes.

    {"call": "prepare", "candidate": "inductor"}  ->  {"ok": {...}}
                                                  or  {"failed": {"status": ..., "failure": {...}}}

Standard output and error belong to the model's code; the parent sends them to
the case's log. ``python -m harness.worker --job FILE`` runs one job by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from harness.codec import from_json, to_json
from harness.limits import limit_memory
from harness.orphan import end_with_parent
from harness.schema import Case, Job
from harness.status_page import Activity, StatusPage

if TYPE_CHECKING:
    from harness.workload import Workload


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.worker", description=__doc__)
    parser.add_argument("--job", type=Path, help="run the job in this file and print what it measured")
    parser.add_argument("--pipes", help="three descriptors, used by the runner: requests,replies,status page")
    options = parser.parse_args(argv)
    if options.job is not None:
        from harness.replay import replay

        return replay(options.job)
    if options.pipes is None:
        parser.error("give --job FILE (the runner itself gives --pipes)")
    requests, replies, page = (int(number) for number in options.pipes.split(","))
    end_with_parent(requests)
    with os.fdopen(requests, encoding="utf-8") as incoming, os.fdopen(replies, "w", encoding="utf-8") as out:
        serve(incoming, out, StatusPage(page).write)
    # threads and pools of libraries may keep an interpreter from ending; nothing is left to save
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def serve(incoming: IO[str], outgoing: IO[str], announce: Callable[[Activity], None]) -> None:
    """Answers calls until the parent closes the pipe or says ``end``."""
    answer: Callable[[dict[str, Any]], Any] | None = None
    for line in incoming:
        request = json.loads(line)
        if request["call"] == "end":
            return
        if answer is None:
            announce(Activity(phase="import"))
            job = from_json(Job, request["job"])
            limit_memory(job)
            answer = answers(job, announce)
        reply = json.dumps(guarded(answer, request), allow_nan=False)
        outgoing.write(reply + "\n")
        outgoing.flush()


def answers(
    job: Job, announce: Callable[[Activity], None], build: Callable[[Case], Workload] | None = None
) -> Callable[[dict[str, Any]], Any]:
    """What answers the calls of one job. ``build`` stands for the suite's, where there is no suite."""
    from harness.session import Session  # imports torch, after the parent knows that we live

    session = Session(job, announce, build)

    def answer(request: dict[str, Any]) -> Any:
        call = request["call"]
        if call == "open":
            model, environment = session.open()
            return {"model": model, "environment": environment}
        if call == "prepare":
            status, parity, metrics, notes = session.prepare(request["candidate"])
            return {"status": status, "parity": parity, "metrics": metrics, "notes": notes}
        if call == "warm_up":
            session.keep_only(tuple(request["candidates"]))
            return {"metrics": session.warm_up()}
        if call == "measure":
            session.keep_only(tuple(request["candidates"]))
            rounds, recompiled = session.measure(request["rounds"], request["within_s"])
            return {"rounds": rounds, "recompiled": recompiled}
        if call == "finish":
            return {"metrics": session.finish()}
        raise ValueError(f"there is no call {call!r}")

    return answer


def guarded(answer: Callable[[dict[str, Any]], Any], request: dict[str, Any]) -> dict[str, Any]:
    """The reply to one call: ``ok`` with the answer, or ``failed`` with status and failure."""
    import traceback

    from harness.failures import describe_failure, is_out_of_memory
    from harness.schema import Status
    from harness.session import JobFailed

    try:
        return {"ok": to_json(answer(request))}
    except JobFailed as failed:
        return {"failed": to_json({"status": failed.status, "failure": failed.failure})}
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        status = Status.OOM if is_out_of_memory(error) else Status.FAIL_TO_RUN
        failure = describe_failure(error, request["call"].replace("_", " "))
        return {"failed": to_json({"status": status, "failure": failure})}


if __name__ == "__main__":
    sys.exit(main())
