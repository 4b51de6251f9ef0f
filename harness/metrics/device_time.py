"""``device_s``: the time (s) that the device works in one step, measured by its own events.

The host submits a few steps while the device sleeps, so the device never waits for the host. The rest of a
step's time is the host's: a *launch-bound* step is faster with fewer kernels, or with CUDA graphs. A step
that reads a value of the device, or has more kernels than the device's queue (about 1,000), has none.
"""

from __future__ import annotations

from harness.declared import Seen
from harness.devices import of
from harness.metrics import ByVariant, Ended, declared_beside
from harness.timing.first_calls import timed

WHEN = "end"
STEPS = 5
MOST_S = 0.5  # of the steps; a longer step is measured once


def _launch_bound(seen: Seen) -> float | None:
    busy_s, step_s = seen.number("device_s"), seen.step_s.get(seen.side)
    return max(0.0, 1 - busy_s / step_s) if busy_s is not None and step_s else None


METRICS = declared_beside(__file__, launch_bound=_launch_bound)


def measure(ended: Ended) -> ByVariant:
    numbers: ByVariant = {}
    if not of(ended.device).accelerated:
        return numbers
    for name, variant in ended.variants.items():
        step_s = timed(variant.step, ended.synchronize)[0]
        steps = max(1, min(STEPS, int(MOST_S / max(step_s, 1e-9))))
        for count in dict.fromkeys((steps, 1)):  # a single step may fit into the queue
            busy_s = of(ended.device).busy_s(variant.step, count, 2 * count * step_s)
            if busy_s is not None:
                numbers[name] = {"device_s": busy_s / count}
                break
        variant.release()
    return numbers
