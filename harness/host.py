"""A process that has imported torch and the model libraries, and forks a worker for each job.

Importing takes seconds, a fork milliseconds. The host itself runs nothing: no tensor is made and no
device is touched in it, so that a worker starts with the libraries loaded and otherwise fresh. With
``--bare`` the host imports nothing, and its workers are as new as a new interpreter's.

Whatever a worker leaves behind, in a session of its own or not, becomes the host's child and is ended
before the worker's end is told; and so it is, with the worker, when the runner dies.

The runner speaks JSON over a socket, one message each, descriptors beside it:

    {"spawn": "/run/cases/x", "suite": "timm_models"}  [requests, replies, status page, log]
        ->  {"pid": 1234}  and, when the worker has ended,  {"ended": -11}
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.orphan import adopt_orphans, end_children, end_with_parent
from harness.suite_files import load_suite, suite_names

MESSAGE = 1 << 16
DESCRIPTORS = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.host", description=__doc__)
    parser.add_argument("--socket", type=int, required=True, help="a descriptor, given by the runner")
    parser.add_argument("--bare", action="store_true", help="import nothing: workers do it themselves")
    options = parser.parse_args()
    end_with_parent(options.socket, signal.SIGTERM)
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the runner's to answer
    with socket.socket(fileno=options.socket) as runner:
        if not options.bare:
            with _importing():
                _import_torch()
        _serve(runner, bare=options.bare)
    return 0


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    """Garbage collection off, which takes a fifth of the time that imports take, and once in the end.

    What is imported stays as it is then: collections in workers would copy its pages.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def _import_torch() -> None:
    """Everything that a session imports sooner or later. Compilers' own process pools must not start here."""
    os.environ["TORCH_WARM_POOL"] = "0"
    import torch._dynamo
    import torch._functorch.aot_autograd
    import torch._inductor.compile_fx
    import torch.profiler  # noqa: F401

    import harness.replay  # the session and all it needs
    import harness.worker  # noqa: F401

    del os.environ["TORCH_WARM_POOL"]


def _serve(runner: socket.socket, *, bare: bool) -> None:
    warmed = set[str]()
    while True:
        data, descriptors, _, _ = socket.recv_fds(runner, MESSAGE, DESCRIPTORS)
        if not data:
            return
        request = json.loads(data)
        if not bare and request["suite"] not in warmed:
            warmed.add(request["suite"])
            with _importing():
                _warm(request["suite"])
        # while there is a worker, the closed socket says that the runner has died: there is work to do then
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        pid = os.fork()
        if pid == 0:
            runner.close()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _become_worker(Path(request["spawn"]), descriptors, "fresh" if bare else "forked")
        for descriptor in descriptors:
            os.close(descriptor)
        _send(runner, {"pid": pid})
        if not _await(pid, runner):
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _warm(suite: str) -> None:
    """Imports the suite's libraries. A suite by path is the user's code: it runs in workers only."""
    if suite not in suite_names():
        return
    warm = getattr(load_suite(suite), "warm", None)
    if warm is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # what it cannot import, a worker will fail to import, and say so in its record
            with contextlib.suppress(Exception):
                warm()


def _await(pid: int, runner: socket.socket) -> bool:
    """Waits for the worker, ends what it left, tells how it ended. False: the runner has gone."""
    watched = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        poll.register(runner, 0)  # hang-up alone
        while True:
            ready = dict(poll.poll())
            if watched in ready:
                break
            if ready.get(runner.fileno(), 0) & (select.POLLHUP | select.POLLERR):
                end_children()
                return False
    finally:
        os.close(watched)
    _, status = os.waitpid(pid, 0)
    end_children()
    _send(runner, {"ended": os.waitstatus_to_exitcode(status)})
    return True


def _send(runner: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        runner.send(json.dumps(message).encode())


def _become_worker(folder: Path, descriptors: list[int], kind: str) -> None:
    """Turns the forked process into what ``python -m harness.worker`` starts as. Does not return."""
    from harness.worker import KIND, run

    requests, replies, page, log = descriptors
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, source in enumerate((nothing, log, log)):
        os.dup2(source, number)
    os.close(nothing)
    os.close(log)
    os.chdir(folder)
    os.environ[KIND] = kind
    run(requests, replies, page)


if __name__ == "__main__":
    sys.exit(main())
