"""Saves and restores what belongs to the whole process around ``compare()``: settings and generators."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from harness import devices

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
            with contextlib.ExitStack() as plain:
                plain.enter_context(python_left_as_it_was())
                plain.enter_context(torch.inference_mode(mode=False))
                plain.enter_context(torch.enable_grad())
                for kind in devices.KINDS:
                    if kind is type(devices.CPU) or kind().in_use():
                        plain.enter_context(torch.autocast(kind.type, enabled=False))
                yield
        finally:
            for step in steps:
                with contextlib.suppress(Exception):  # a broken device costs no other setting, and no record
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
