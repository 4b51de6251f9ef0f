"""A process that has imported torch and the model libraries, and forks a worker for each job.

An import takes seconds, a fork milliseconds. The host makes no tensor and uses no device, so a worker
starts with loaded libraries and is otherwise fresh. With ``--bare`` the host imports nothing, and its
workers are like new interpreters.

Process cleanup: every process that a worker leaves behind, also in another session, becomes a child of the
host. The host kills these processes before it reports the worker's end. If the runner dies, the host kills
the worker and them.

The runner and the host exchange JSON messages over a socket; descriptors are passed with the request:

    {"spawn": "/run/x", "suite": "timm_models", "case": "vgg16", "device": "cpu"}  [requests, replies, ...]
        ->  {"pid": 1234}  and, when the worker has ended,  {"ended": -11}

The host itself must not use the driver of a device, because a fork cannot use it afterwards. A package may do
so while it is imported: Inductor of torch 2.11 asks whether there is a GPU. With ``ASK_NVML`` torch answers
that without the driver. A forked worker first opens its device all the same. If that fails, the worker
replaces itself by a new interpreter, and its records say so.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import platform
import select
import signal
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from harness import devices
from harness.loading.suite_files import load_suite, suite_names
from harness.worker import KIND, WHY_FRESH
from harness.worker.limits import importing, use_cpus
from harness.worker.process_cleanup import adopt_orphans, end_children, end_with_parent

MESSAGE = 1 << 16
DESCRIPTORS = 4
LONGEST = 200  # characters of an error in a sentence
ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"  # torch.cuda.is_available then leaves the driver alone


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.worker.host", description=__doc__)
    parser.add_argument("--socket", type=int, required=True, help="descriptor of the runner's socket")
    parser.add_argument("--bare", action="store_true", help="import nothing; the workers import torch")
    options = parser.parse_args()
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):  # Anaconda's Python, or an old kernel: workers start without a host
        return 1
    end_with_parent(options.socket, signal.SIGTERM)
    use_cpus()
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner handles Ctrl-C
    with socket.socket(fileno=options.socket) as runner:
        if not options.bare:
            with _importing():
                _import_torch()
        _serve(runner, bare=options.bare)
    return 0


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    """``importing``, with ``ASK_NVML``.

    The imported objects are frozen afterwards: collections in the workers would otherwise copy their pages.
    """
    asked = os.environ.get(ASK_NVML)
    os.environ[ASK_NVML] = "1"
    try:
        with importing():
            yield
            gc.collect()
            gc.freeze()
    finally:
        if asked is None:
            del os.environ[ASK_NVML]
        else:
            os.environ[ASK_NVML] = asked


def _import_torch() -> None:
    """Imports everything that a session needs. Compilers must not start their process pools here."""
    os.environ["TORCH_WARM_POOL"] = "0"
    import torch._dynamo
    import torch._functorch.aot_autograd
    import torch._inductor.compile_fx
    import torch.profiler  # noqa: F401

    import harness.worker.main
    import harness.worker.session  # noqa: F401 - imports all that it needs
    from harness.backends.settings.in_force import set_from_outside
    from harness.worker.environment import library_versions

    for look in (set_from_outside, library_versions, platform.platform):  # they keep what they have found
        look()

    del os.environ["TORCH_WARM_POOL"]


def _serve(runner: socket.socket, *, bare: bool) -> None:
    warmed = set[tuple[str, str]]()
    while True:
        data, descriptors, _, _ = socket.recv_fds(runner, MESSAGE, DESCRIPTORS)
        if not data:
            return
        request = json.loads(data)
        built = request["suite"], request["case"]
        if not bare and built not in warmed:
            warmed.add(built)
            with _importing():
                _warm(*built)
        # while a worker runs, SIGTERM must not end the host: the closed socket reports that the runner has
        # died, and the host then has processes to kill
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        pid = os.fork()
        if pid == 0:
            runner.close()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _become_worker(request, descriptors, "fresh" if bare else "forked")
        for descriptor in descriptors:
            os.close(descriptor)
        _send(runner, {"pid": pid})
        if not _await(pid, runner):
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _warm(suite: str, case: str) -> None:
    """Imports what ``build`` imports. A suite given by path is a user's code, which runs in workers only."""
    if suite not in suite_names():
        return
    warm = getattr(load_suite(suite), "warm", None)
    if warm is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # the worker will repeat a failed import and report it in its record
            with contextlib.suppress(Exception):
                warm(case)


def _await(pid: int, runner: socket.socket) -> bool:
    """Waits for the worker, kills the processes that it left, reports its exit code.

    False if the runner has died.
    """
    watched = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        poll.register(runner, 0)  # reports only that the runner has closed the socket
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


def _become_worker(request: Mapping[str, Any], descriptors: list[int], kind: str) -> None:
    """Gives the forked process the state of a new ``python -m harness.worker`` and runs it. Never returns."""
    from harness.worker.main import run

    device = devices.named(request["device"])
    requests, replies, page, log = descriptors
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, source in enumerate((nothing, log, log)):
        os.dup2(source, number)
    os.close(nothing)
    os.close(log)
    os.chdir(request["spawn"])
    os.environ[KIND] = kind
    if kind == "forked" and device.accelerated:
        try:
            device.open()
        except Exception as error:  # a driver may raise anything
            _start_fresh(device, error, (requests, replies, page))
    run(requests, replies, page)


def _start_fresh(device: devices.Device, error: Exception, pipes: tuple[int, ...]) -> None:
    """Replaces this process by a new interpreter with the same pipes. Nothing has been read from them yet."""
    os.environ[KIND] = "fresh"
    os.environ[WHY_FRESH] = why = (
        f"a forked worker could not open {device}, so a new interpreter was started "
        f"({' '.join(f'{type(error).__name__}: {error}'.split())[:LONGEST]})"
    )
    os.write(2, f"{why}\n".encode())
    for descriptor in pipes:
        os.set_inheritable(descriptor, True)
    command = [sys.executable, "-u", "-m", "harness.worker", "--pipes", ",".join(map(str, pipes))]
    os.execv(sys.executable, command)  # noqa: S606 - no shell


if __name__ == "__main__":
    sys.exit(main())
