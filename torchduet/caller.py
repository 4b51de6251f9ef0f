"""The calling process: a worker inside of it, and what belongs to all of it, saved and restored."""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import devices
from harness.codec import from_json
from harness.schema import Case, Job
from harness.worker.status_page import Activity

if TYPE_CHECKING:
    from harness.program import Compilers
    from harness.workload import Workload

Setting = tuple[Callable[[], Any], Callable[[Any], object]]
"""Reads a setting of torch, and writes it."""
OF_BACKENDS = (
    # the older API for TF32 comes before the newer one, because writing the older changes both
    *("cuda.matmul.allow_tf32", "cudnn.allow_tf32", "cudnn.enabled"),
    *("cudnn.benchmark", "cudnn.deterministic"),
    *("fp32_precision", "cuda.matmul.fp32_precision", "cudnn.fp32_precision", "cudnn.conv.fp32_precision"),
    *("cudnn.rnn.fp32_precision", "mkldnn.fp32_precision", "mkldnn.matmul.fp32_precision"),
)

UNREADABLE = object()
"""The value of a setting that this torch lacks, or refuses to read because its two APIs were mixed."""

ALONE = threading.RLock()
"""Standard streams and torch's settings belong to the whole process: a second thread waits."""


@contextmanager
def python_left_as_it_was() -> Iterator[None]:
    """Restores Python's random numbers and filters of warnings, which imports use and change."""
    state = random.getstate()
    try:
        with warnings.catch_warnings():
            yield
    finally:
        random.setstate(state)


@contextmanager
def left_as_it_was() -> Iterator[None]:
    """Gradients on and autocast off inside; restores the caller's settings and generators at the end."""
    import torch

    with ALONE:
        settings = [partial(_put_back, read, write, _read(read)) for read, write in _settings()]
        steps: list[Callable[[], object]] = [devices.remember(), *settings, _empty]
        if (numpy := sys.modules.get("numpy")) is not None:
            steps.append(partial(numpy.random.set_state, numpy.random.get_state()))
        try:
            with ExitStack() as plain:
                plain.enter_context(python_left_as_it_was())
                plain.enter_context(torch.inference_mode(mode=False))
                plain.enter_context(torch.enable_grad())
                for kind in devices.KINDS:
                    if kind is type(devices.CPU) or kind().in_use():
                        plain.enter_context(torch.autocast(kind.type, enabled=False))
                yield
        finally:
            for step in steps:
                with suppress(Exception):  # a broken device costs no other setting, and no record
                    step()


def _put_back(read: Callable[[], Any], write: Callable[[Any], object], before: Any) -> None:
    if before is not UNREADABLE and _read(read) != before:
        write(before)


def _empty() -> None:
    """Gives an accelerator's memory back: sessions are reference cycles, which live until a collection."""
    for device in (kind() for kind in devices.KINDS if kind.accelerated and kind().in_use()):
        gc.collect()
        device.empty_cache()


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (AttributeError, OSError, RuntimeError):
        return UNREADABLE


def _settings() -> Iterator[Setting]:
    import torch

    warns_only = torch.is_deterministic_algorithms_warn_only_enabled
    yield os.getcwd, os.chdir
    yield sys.path.copy, partial(sys.path.__setitem__, slice(None))
    yield os.environ.copy, _set_environment
    yield sys.getrecursionlimit, sys.setrecursionlimit
    yield torch.get_num_threads, torch.set_num_threads
    yield torch.get_default_dtype, torch.set_default_dtype
    yield torch.is_grad_enabled, torch.set_grad_enabled
    yield (
        lambda: (torch.are_deterministic_algorithms_enabled(), warns_only()),
        lambda state: torch.use_deterministic_algorithms(state[0], warn_only=state[1]),
    )
    yield torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    for path in OF_BACKENDS:
        *parts, name = path.split(".")
        place: Any = torch.backends
        for part in parts:
            place = getattr(place, part, None)
        yield partial(getattr, place, name), partial(setattr, place, name)


def _set_environment(variables: dict[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


@dataclass
class LocalWorker:
    """Answers like ``harness.worker``, for a model of this process. There is no timeout.

    Output goes to ``log``, like a worker's output. ``tell`` is called with each activity.
    """

    build: Callable[[Case], Workload]
    compilers: Compilers
    log: Path
    tell: Callable[[Activity], object]
    _answered: Callable[..., dict[str, Any]] | None = None
    _activity: Activity = field(default_factory=lambda: Activity(phase="import"))

    def call(self, request: Mapping[str, Any], deadline: float) -> dict[str, Any]:  # noqa: ARG002
        """Answers one call. The reply goes through JSON, as it would over a pipe."""
        from harness.worker.main import Answers, guarded

        if self._answered is None:
            job = from_json(Job, request["job"])
            answers = Answers(job, self._announce, self.build, self.compilers)
            self._answered = partial(guarded, answers, device=devices.named(job.device))
        with _printing_to(self.log):
            answered = self._answered(dict(request))
        reply: dict[str, Any] = json.loads(json.dumps(answered, allow_nan=False))
        return reply

    def activity(self) -> Activity:
        return self._activity

    def _announce(self, activity: Activity) -> None:
        self._activity = activity
        self.tell(activity)


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Redirects to this file what Python prints, and what libraries write to standard error.

    C++ code, such as torch's profiler, writes to file descriptor 2 directly.
    """
    with ExitStack() as stack:
        log = stack.enter_context(path.open("a", encoding="utf-8", errors="backslashreplace"))
        stack.enter_context(redirect_stdout(log))
        stack.enter_context(redirect_stderr(log))
        with suppress(OSError):  # the process has no standard error
            original = os.dup(2)
            stack.callback(os.close, original)
            stack.callback(os.dup2, original, 2)
            os.dup2(log.fileno(), 2)
        yield
