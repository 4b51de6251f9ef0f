"""Nothing outlives the runner: a worker ends when it does, and so does all that the model's code started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PR_SET_PDEATHSIG = 1  # of linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36


def end_with_parent(requests: int, how: signal.Signals = signal.SIGKILL) -> None:
    """Has the system send this process that signal when the thread that started it ends. Linux only.

    Elsewhere a worker notices only when it has answered its call and finds its pipe of ``requests``
    (a descriptor) closed.
    """
    if not _tell_the_system(PR_SET_PDEATHSIG, int(how)):
        return
    # it may have ended before we asked: then nobody holds the other end of the pipe any more
    poll = select.poll()
    poll.register(requests, 0)
    if any(events & select.POLLHUP for _, events in poll.poll(0)):
        os._exit(0)


def adopt_orphans() -> None:
    """Makes every descendant whose own parent ends a child of this process, whatever session it is in.

    Linux only. ``end_children`` then reaches daemons, too.
    """
    _tell_the_system(PR_SET_CHILD_SUBREAPER, 1)


def end_children(within_s: float = 5.0) -> None:
    """Kills and reaps this process's children, and the orphans that become its children by that.

    A process that even SIGKILL does not end at once is left after ``within_s`` seconds.
    """
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for child in _children():  # not reaped yet, so the number is still theirs
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.005)


def _children() -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            _, _, after_name = (process / "stat").read_bytes().rpartition(b")")
            if int(after_name.split()[1]) == os.getpid():
                yield int(process.name)


def _tell_the_system(option: int, value: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    return True
