"""``energy_per_step_j``: energy of one step (J) by the counter of an NVIDIA GPU (NVML), with ``--energy``.

Steps of each variant are repeated for five seconds, with as many steps between two waits as in the rounds,
because the counter changes in intervals. The energy of other programs on the device is included. Of several
processes, only the first measures it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from harness.hardware.nvml import gpu_of
from harness.metrics import ByVariant, Ended, declared_beside
from harness.timing.first_calls import timed
from harness.timing.measure import stream_of

WHEN, WANTED = "end", ("energy",)
METRICS = declared_beside(__file__, energy_ratio=lambda seen: seen.eager_over_candidate("energy_per_step_j"))
LASTING_S = 5.0


def measure(ended: Ended) -> ByVariant:
    gpu = None if ended.job.protocol.process else gpu_of(ended.device)
    energies: ByVariant = {}
    if gpu is None:
        return energies
    for name, variant in ended.variants.items():
        stream = stream_of(timed(variant.step, ended.synchronize)[0])
        step_j = per_step_j(variant.step, gpu.energy_j, ended.synchronize, stream=stream)
        energies[name] = {"energy_per_step_j": step_j}
        variant.release()
    return energies


def per_step_j(
    step: Callable[[], object],
    meter: Callable[[], float],
    synchronize: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
    *,
    stream: int = 1,
) -> float | None:
    """Joules of one step, from steps for ``LASTING_S`` (at least three). None if the counter stays equal."""
    synchronize()
    began, before, steps = clock(), meter(), 0
    while steps < 3 or clock() - began < LASTING_S:
        for _ in range(stream):
            step()
        synchronize()
        steps += stream
    used = meter() - before
    return used / steps if used > 0 else None
