"""Instructions that this thread executes, with the threads and processes that it starts meanwhile (Linux).

Other programs lengthen times, but change the number of instructions little. Virtual machines and containers
often have no counter.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}  # numbers of the system call
SIZE = 128  # of perf_event_attr
INSTRUCTIONS = 1  # PERF_COUNT_HW_INSTRUCTIONS of PERF_TYPE_HARDWARE
INHERIT, WITHOUT_KERNEL, WITHOUT_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6  # perf_event_open(2)


@contextmanager
def counting() -> Iterator[Callable[[], int | None]]:
    """A function that returns the instructions in user space since now; None without a counter."""
    descriptor = _open()
    try:
        yield lambda: None if descriptor < 0 else int.from_bytes(os.read(descriptor, 8), "little")
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _open() -> int:
    """The counter's descriptor; -1 if this system has none, or does not permit it."""
    call = PERF_EVENT_OPEN.get(platform.machine())
    if platform.system() != "Linux" or call is None:
        return -1
    flags = INHERIT | WITHOUT_KERNEL | WITHOUT_HYPERVISOR
    attributes = struct.pack("IIQQQQQ", 0, SIZE, INSTRUCTIONS, 0, 0, 0, flags).ljust(SIZE, b"\0")
    this_thread, any_cpu, no_group = 0, -1, -1
    return int(ctypes.CDLL(None).syscall(call, attributes, this_thread, any_cpu, no_group, 0))
