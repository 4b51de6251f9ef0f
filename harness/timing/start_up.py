"""A process of a start-up race (``--start-up``): what it loads, its steps from the first on, what it stores.

The clock begins when the model is built and on its device. What every form needs before that, the imports and
the building, is not in it. No step of eager runs before, so the first steps also pay for what any process
pays once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch

from harness.protocol import CACHES, LIBRARY
from harness.schema import CACHE_FILE, COLD, SIZES, Protocol
from harness.timing.first_calls import timed

STEPS, LEAST_STEPS = 100, 10


class StartUp:
    """Of one candidate in this process. ``races``: its steps are timed, and nothing else happens."""

    def __init__(self, protocol: Protocol) -> None:
        self._start = protocol.start
        self._folder = Path(protocol.stored)
        self._within_s = protocol.max_measure_s
        self.races = bool(protocol.start) and not (protocol.accuracy or protocol.performance)

    @property
    def package(self) -> Path | None:
        """The file for a compiler that makes packages; None outside of a race."""
        return self._folder / LIBRARY if self._start not in ("", SIZES) else None

    def load(self) -> None:
        """Loads torch's portable cache file, if the process begins with it."""
        if self._start != CACHE_FILE:
            return
        if torch.compiler.load_cache_artifacts((self._folder / CACHES).read_bytes()) is None:
            raise ValueError("torch loads nothing from the cache file that it has written")

    def steps(self, step: Callable[[], object], synchronize: Callable[[], None]) -> list[float]:
        """Seconds of each step: ``STEPS`` of them, or ``LEAST_STEPS`` and those that begin in the time limit.

        The limit counts from the end of the first step, which may compile.
        """
        seconds = [timed(step, synchronize)[0]]
        end = time.perf_counter() + self._within_s
        while len(seconds) < STEPS and (len(seconds) < LEAST_STEPS or time.perf_counter() < end):
            seconds.append(timed(step, synchronize)[0])
        return seconds

    def store(self) -> None:
        """After a cold start: writes torch's portable cache file, if the compiler has left anything."""
        save = getattr(getattr(torch, "compiler", None), "save_cache_artifacts", None)  # torch 2.6
        if self._start == COLD and save is not None and (artifacts := save()) is not None:
            (self._folder / CACHES).write_bytes(artifacts[0])
