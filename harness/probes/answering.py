"""How a probe answers: a child does the work, and this process ends everything that the child leaves.

The work may run a user's file, which can close descriptors, print, start processes and threads, or end the
interpreter. So the answer has a descriptor of its own. The process writes one or two lines to the standard
output that the runner gave it:

    {"answer": ...}  or  {"raised": "ImportError: ...", "missing": "torch"}     unless the child was ended
    {"ended": -11}                                                              the child's exit code

The runner holds the other end of standard input. When it closes this pipe, or dies, all of this ends.
"""

from __future__ import annotations

import json
import os
import select
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from harness.worker.process_cleanup import adopt_orphans, end_children, end_with_parent

LOOK_EVERY_S = 0.02


def answer(work: Callable[[], Any]) -> None:
    """Writes the value of ``work()``, as JSON. Returns when no process of the work is left."""
    adopt_orphans()
    child = os.fork()
    if child == 0:
        _work(work)
    code = _await(child)
    end_children()
    os.write(1, json.dumps({"ended": code}).encode())


def _work(work: Callable[[], Any]) -> NoReturn:
    try:
        end_with_parent(0)
        reply = os.dup(1)
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        line = _line(work)
        with os.fdopen(reply, "wb") as file:
            file.write(line)
        os._exit(0)  # the user's threads and exit handlers do not delay the answer
    finally:
        os._exit(1)


def _line(work: Callable[[], Any]) -> bytes:
    try:
        value: dict[str, Any] = {"answer": work()}
        return f"{json.dumps(value)}\n".encode()
    except BaseException as error:  # the user's code may raise anything
        traceback.print_exc()
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        return f"{json.dumps({'raised': f'{type(error).__name__}: {error}', 'missing': missing})}\n".encode()


def _await(child: int) -> int:
    """The child's exit code, as ``subprocess`` gives it. Kills the child when the runner has gone."""
    runner = select.poll()
    runner.register(0, 0)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if runner.poll(LOOK_EVERY_S * 1000):
            end_children()
            os._exit(1)
