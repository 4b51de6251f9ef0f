"""Process cleanup: the worker and all processes that the model's code started end with the runner."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

from harness.hardware.cpus import processes

PR_SET_PDEATHSIG = 1  # of linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36


def end_with_parent(requests: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Asks the system to send this process the signal ``how`` when the thread that started it ends.

    Linux only. On other systems a worker notices the end only after its call, when its pipe ``requests``
    (a descriptor) is closed.
    """
    if not _prctl(PR_SET_PDEATHSIG, int(how)):
        return
    # if the parent ended before prctl, the other end of the pipe is already closed
    poll = select.poll()
    poll.register(requests, 0)
    if any(events & select.POLLHUP for _, events in poll.poll(0)):
        os._exit(0)


def adopt_orphans() -> None:
    """Makes this process the new parent of every descendant that loses its parent, in any session.

    Linux only. ``end_children`` then kills daemons, too.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_children(within_s: float = 5.0) -> None:
    """Kills and reaps this process's children, and the descendants that become its children meanwhile.

    After ``within_s`` seconds it gives up on processes that SIGKILL has not ended yet.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        children = [pid for pid, fields in processes() if int(fields[1]) == os.getpid()]
        for child in children:  # not reaped yet, so no other process can have this pid
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.005)


def _prctl(option: int, value: int) -> bool:
    """Whether the system has prctl."""
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    return True
