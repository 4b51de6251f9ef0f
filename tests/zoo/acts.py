"""What misbehaving models do, as functions without torch: each is one way to hurt the process it is in."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

Act = Callable[[], Any]

MEGABYTE = 1 << 20


def in_turn(*acts: Act) -> Act:
    return lambda: [act() for act in acts]


class Countdown:
    """Acts on the n-th call only."""

    def __init__(self, calls: int, act: Act) -> None:
        self.left = calls
        self.act = act

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


# -- exceptions --------------------------------------------------------------------
def bite() -> NoReturn:
    raise RuntimeError("the animal bites")


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("there are no words for this")

    __repr__ = __str__


def bite_without_words() -> NoReturn:
    raise UnprintableError


def bite_at_length() -> NoReturn:
    raise RuntimeError("\x1b[31m[bold]<script>alert(1)</script>\ud800\0|`\n\r" * 100_000)


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


def imports(name: str) -> Act:
    return lambda: importlib.import_module(name)


# -- ways to end ---------------------------------------------------------------------
def segfault() -> None:
    ctypes.string_at(0)


def die_of(number: signal.Signals) -> Act:
    return lambda: os.kill(os.getpid(), number)


def exit_at_once(code: int) -> Act:
    return lambda: os._exit(code)


def exit_politely() -> NoReturn:
    sys.exit(7)


# -- ways to stay --------------------------------------------------------------------
def hang() -> None:
    time.sleep(3600)


def spin() -> None:
    while True:
        pass


def hang_in_c() -> None:
    ctypes.PyDLL(None).sleep(3600)  # PyDLL keeps the GIL


def ignore_signals_and_hang() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    hang()


def hang_at_exit() -> None:
    import atexit

    atexit.register(hang)
    threading.Thread(target=hang, daemon=False).start()


# -- other processes -----------------------------------------------------------------
def leave_a_child() -> None:
    subprocess.Popen(["sleep", "3600"])  # noqa: S607


def leave_a_daemon() -> None:
    """A child in a session of its own, whose parent is gone: no signal to our group reaches it.

    Nor has it anything of ours in its environment.
    """
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvpe("sleep", ["sleep", "3600"], {"PATH": os.defpath})  # noqa: S606, S607
        os._exit(0)
    os.wait()


def kill_the_parent() -> None:
    """Of a worker that is not the runner, but what started it."""
    os.kill(os.getppid(), signal.SIGKILL)
    hang()


def fork_and_go_on() -> None:
    """Both processes return from here, and both believe that they are the worker."""
    os.fork()


# -- memory --------------------------------------------------------------------------
def eat_memory() -> None:
    eaten = []
    while True:
        eaten.append(bytearray(b"x" * (64 * MEGABYTE)))


def feed_children() -> None:
    """Three children with 700 MB each: none is beyond a limit of 2 GB, all together are."""
    program = "import time; eaten = b'x' * (700 << 20); time.sleep(3600)"
    for _ in range(3):
        subprocess.Popen([sys.executable, "-c", program])
    hang()


# -- output --------------------------------------------------------------------------
def print_garbage() -> None:
    """Eight megabytes of replies that are none, random bytes and escape sequences."""
    for _ in range(32):
        sys.stdout.write('{"ok": {"rounds": []}}\n{"failed": 1}\n' * 4000)
        sys.stdout.flush()
        sys.stdout.buffer.write(random.randbytes(1 << 16))
        sys.stderr.buffer.write(b"\x00\xff\x1b[31m\x1b]0;title\x07" * 2000)
    sys.stdout.flush()
    print("records.jsonl\n" * 100_000, end="\r", file=sys.stderr)


class Broken:
    """A stream that fails whatever is done with it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("this stream is broken")


def break_streams() -> None:
    sys.stdout = sys.stderr = Broken()


def close_standard_streams() -> None:
    for descriptor in (0, 1, 2):
        os.close(descriptor)


def close_everything() -> None:
    os.closerange(0, 4096)


def write_everywhere() -> None:
    """Something that looks like a reply, and is none, into every descriptor that takes it."""
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(descriptor, b'["measure", "baseline", 7]\n{"ok"\n')


# -- what the parent reads -------------------------------------------------------------
SEEN_S = 1.2  # the parent looks at the page every half second


def frame_of(function: Any) -> FrameType | None:
    """The frame in which this function runs now; None if it does not."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame


def _descriptor(name: str) -> int:
    """The worker's ``requests``, ``replies`` or ``page``, from the frame that serves them."""
    from harness.worker.main import run

    frame = frame_of(run)
    assert frame is not None
    return int(frame.f_locals[name])


def write_page(content: bytes) -> Act:
    """The page holds this until the worker announces something."""

    def act() -> None:
        os.pwrite(_descriptor("page"), content, 0)
        time.sleep(SEEN_S)

    return act


def truncate_page() -> None:
    os.ftruncate(_descriptor("page"), 0)
    time.sleep(SEEN_S)


def write_reply(content: bytes, times: int = 1) -> Act:
    def act() -> None:
        for _ in range(times):
            left = content
            while left:
                left = left[os.write(_descriptor("replies"), left) :]

    return act


def close_requests() -> None:
    with contextlib.suppress(OSError):  # closed already, in an earlier step
        os.close(_descriptor("requests"))


def remove_the_folder_and_abort() -> None:
    shutil.rmtree(Path.cwd())
    os.abort()


def print_a_gigabyte() -> None:
    for _ in range(1 << 10):
        os.write(1, b"x" * (MEGABYTE - 1) + b"\n")


# -- what belongs to everybody -------------------------------------------------------
def change_the_process() -> None:
    os.chdir(tempfile.gettempdir())
    os.environ.clear()
    os.umask(0o077)
    sys.argv[:] = ["--pipes"]
    random.seed(random.random())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def change_torch() -> None:
    import torch

    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(2 if torch.get_num_threads() == 1 else 1)
    torch.manual_seed(random.randrange(1 << 30))
    torch.set_printoptions(threshold=1)  # type: ignore[no-untyped-call]
    torch.set_flush_denormal(True)
