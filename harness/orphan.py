"""A worker ends when its runner does: also when the runner was killed, and also in the middle of a call."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def end_with_parent(requests: int) -> None:
    """Has the system kill this process when the thread that started it ends. Linux only.

    Elsewhere a worker notices only when it has answered its call and finds its pipe of ``requests``
    (a descriptor) closed. Processes that the model's code has started are not reached.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    # it may have ended before we asked: then nobody holds the other end of the pipe any more
    poll = select.poll()
    poll.register(requests, 0)
    if any(events & select.POLLHUP for _, events in poll.poll(0)):
        os._exit(0)
