"""What is looked at when the timed rounds are over, in extra steps. No failure here costs a result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from harness.late import LateCheck
from harness.metrics import WHOLE, ByVariant, Ended, at_the_end, observing
from harness.reference import Tensors
from harness.schema import BASELINE, Scalar, TensorError
from harness.step import Variant

Changed = dict[str, TensorError]
"""By variant that no longer computes what it did when it was checked, the tensor that is furthest off."""

Run = Callable[[Variant, AbstractContextManager[object]], Tensors]
"""One step as the parity check runs it, inside that context."""


def last_steps(
    ended: Ended, late: LateCheck, run: Run, say: Callable[[str], None]
) -> tuple[Changed, ByVariant]:
    """One more step of every variant: whether it computes what it did, and the metrics of the kind "step".

    Where eager has changed, the model drifts from step to step: eager alone is named then, for nothing
    can be said of the others. A variant that fails now is not judged, for its rounds are over.
    """
    changed, found = Changed(), ByVariant()
    for name, variant in ended.variants.items():
        say(name)
        numbers: dict[str, Scalar] = {}
        try:
            variant.release()
            results = run(variant, observing("step", ended.device, ended.job.extras, numbers))
            error = late.changed(variant, results)
            del results
            variant.release()
        except Exception as failure:  # whatever the model raises now costs no measured result
            print(f"no late check and no step metrics of {name}: {failure}", flush=True)
            continue
        if error is not None:
            changed[name] = error
        found[name] = numbers
        step_peak = numbers.pop("step_peak_bytes", None)
        persistent = variant.persistent_bytes()
        numbers["persistent_bytes"] = persistent
        numbers["peak_memory_bytes"] = persistent + step_peak if isinstance(step_peak, int) else None
    return {BASELINE: changed[BASELINE]} if BASELINE in changed else changed, found


def last_metrics(ended: Ended, of_rounds: dict[str, Scalar]) -> ByVariant:
    """The metrics that come last of all, and those ``of_rounds``, which are the whole job's."""
    found = at_the_end(ended)
    return {**found, WHOLE: {**of_rounds, **found.get(WHOLE, {})}}
