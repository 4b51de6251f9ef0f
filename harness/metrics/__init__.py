"""Metrics, one module each, found by file name.

A module says ``WHEN`` it observes. Most offer a context manager
``observe(device, numbers)`` that adds named numbers, units in their names:

- ``"compile"``: round a candidate's compilation and first calls;
- ``"rounds"``: round a batch of timed rounds, before the first and after the
  last: nothing runs between; ``numbers`` holds what earlier batches gave;
- ``"step"``: round one extra, untimed step of every variant after the timed
  rounds; its numbers get the variant's side (``baseline_``/``candidate_``) in front.

With ``WHEN = "eager"`` it is ``observe(ended, numbers)``, round one more step of eager
that all such modules share; the numbers are the whole job's.

With ``WHEN = "end"`` a module offers ``measure(ended)`` instead, called once
after everything else. It returns numbers by variant, those of the whole job
under ``WHOLE``, and may run steps as it likes.

A module with ``WANTED = "explain"`` is used only where that field of
``harness.schema.Extras`` is set. Metrics are never on during timed samples. One
that fails says so in the log and leaves its numbers out: no result is lost.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast

from harness.schema import BASELINE, WHOLE, Extras, Job, Scalar

if TYPE_CHECKING:
    import torch

    from harness.step import Variant

__all__ = ("WHOLE", "ByVariant", "Ended", "at_the_end", "metric_names", "observing", "of_eager_step")

ByVariant = dict[str, dict[str, Scalar]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What is there when the timed rounds are over. ``variants`` has eager under ``BASELINE``."""

    job: Job
    device: torch.device
    variants: Mapping[str, Variant]
    synchronise: Callable[[], None]


Observe = Callable[["torch.device", dict[str, Scalar]], AbstractContextManager[None]]
ObserveEager = Callable[[Ended, dict[str, Scalar]], AbstractContextManager[None]]
Measure = Callable[[Ended], ByVariant]


def metric_names() -> tuple[str, ...]:
    return tuple(sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_")))


@contextmanager
def observing(
    when: str,
    device: torch.device,
    extras: Extras | None = None,
    numbers: dict[str, Scalar] | None = None,
) -> Iterator[dict[str, Scalar]]:
    """Every metric of that kind at once; the dict yielded (``numbers``, if given) is full in the end."""
    found: dict[str, Scalar] = {} if numbers is None else numbers
    with ExitStack() as stack:
        for name, module in _modules(when, extras or Extras()):
            context = cast("Observe", module.observe)(device, found)
            stack.enter_context(_of_no_consequence(name, context))
        yield found


def at_the_end(ended: Ended) -> ByVariant:
    """Every metric of the kinds ``"eager"`` and ``"end"``, these one after the other."""
    modules = list(_modules("eager", ended.job.extras))
    try:
        whole = of_eager_step(ended, modules)
    except Exception:  # they may not get on with each other, or one with this model
        whole = {}
        for one in modules:
            try:
                whole |= of_eager_step(ended, [one])
            except Exception as error:  # a metric must never cost a measured result
                _say_failed(one[0], error)
    found: ByVariant = {WHOLE: whole}
    for name, module in _modules("end", ended.job.extras):
        try:
            for variant, numbers in cast("Measure", module.measure)(ended).items():
                found.setdefault(variant, {}).update(numbers)
        except Exception as error:  # a metric must never cost a measured result
            _say_failed(name, error)
    return found


def of_eager_step(ended: Ended, modules: Sequence[tuple[str, ModuleType]]) -> dict[str, Scalar]:
    """What these modules of the kind ``"eager"`` observe round one step. Raises what the step raises."""
    variant = ended.variants[BASELINE]
    found: dict[str, Scalar] = {}
    with ExitStack() as stack:
        for name, module in modules:
            context = cast("ObserveEager", module.observe)(ended, found)
            stack.enter_context(_of_no_consequence(name, context))
        variant.step()
    variant.release()
    return found


def _modules(when: str, extras: Extras) -> Iterator[tuple[str, ModuleType]]:
    for name in metric_names():
        try:
            module = importlib.import_module(f"{__name__}.{name}")
        except Exception as error:  # an older torch lacks what it needs
            _say_failed(name, error)
            continue
        wanted = getattr(module, "WANTED", None)
        if when == module.WHEN and (wanted is None or getattr(extras, wanted)):
            yield name, module


@contextmanager
def _of_no_consequence(name: str, context: AbstractContextManager[None]) -> Iterator[None]:
    """The metric's context, whose own errors stay inside. Those of what it observes come out as they are."""
    try:
        context.__enter__()
    except Exception as error:
        _say_failed(name, error)
        yield
        return
    try:
        yield
    except BaseException:
        try:
            context.__exit__(*sys.exc_info())
        except BaseException as error:  # usually the observed error itself on its way out
            if not isinstance(error, Exception):
                raise
        raise
    try:
        context.__exit__(None, None, None)
    except Exception as error:
        _say_failed(name, error)


def _say_failed(name: str, error: Exception) -> None:
    print(f"no metric {name}: {type(error).__name__}: {error}", flush=True)
