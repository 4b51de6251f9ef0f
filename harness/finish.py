"""What is measured when the timed rounds are over: metrics of extra steps. No failure here costs a result."""

from __future__ import annotations

from collections.abc import Callable

from harness.metrics import WHOLE, ByVariant, Ended, at_the_end, observing
from harness.schema import Scalar


def step_metrics(ended: Ended, say: Callable[[str], None]) -> ByVariant:
    """Metrics of one extra step of every variant, which ``say`` is told. A variant that fails has none."""
    found: ByVariant = {}
    for name, variant in ended.variants.items():
        say(name)
        try:
            variant.release()
            with observing("step", ended.device, ended.job.extras) as numbers:
                variant.step()
                ended.synchronise()
            variant.release()
        except Exception as error:  # a metric must never cost a measured result
            print(f"no step metrics for {name}: {error}", flush=True)
            continue
        step_peak = numbers.pop("step_peak_bytes", None)
        persistent = variant.persistent_bytes()
        numbers["persistent_bytes"] = persistent
        numbers["peak_memory_bytes"] = persistent + step_peak if isinstance(step_peak, int) else None
        found[name] = numbers
    return found


def last_metrics(ended: Ended, of_rounds: dict[str, Scalar]) -> ByVariant:
    """The metrics that come last of all, and those ``of_rounds``, which are the whole job's."""
    found = at_the_end(ended)
    return {**found, WHOLE: {**of_rounds, **found.get(WHOLE, {})}}
