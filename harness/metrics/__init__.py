"""Metrics, one module each, found by file name.

A module's ``WHEN`` says when it observes. Most modules have a context manager ``observe(device, numbers)``
that adds named numbers, with units in their names:

- ``"compile"``: around a candidate's compilation and first calls;
- ``"rounds"``: around a batch of timed rounds, before the first round and after the last;
  ``over_batches`` says how the numbers of several batches are combined. If the context yields a function,
  the function is called after each sample, outside its timed part, with the name of the sample's variant. It
  returns whether the device was throttled in it. ``of_variant(variant, name)`` is the key of a variant's
  number;
- ``"step"``: around one extra, untimed step of every variant after the timed rounds. Its numbers get the
  variant's side (``baseline_``/``candidate_``) as a prefix. After the step, an optional function
  ``complete(variant, numbers)`` may add numbers of the variant.

With ``WHEN = "eager"`` the function is ``observe(ended, numbers)``, around one more step of eager that all
such modules share; the numbers belong to the whole job.

With ``WHEN = "end"`` a module has ``measure(ended)`` instead, which is called last and once. It returns
numbers by variant (the whole job's under ``WHOLE``), and may run steps.

``METRICS`` declares the numbers: names, units, where they are shown (``harness.declared``). The parent
imports the modules for it, so they import torch only inside functions.

A module with ``WANTED = ("explain",)`` is used only if such a field of ``harness.schema.Extras`` is set.
Metrics are never on during timed samples. If a metric fails, the log says so, and only its numbers are
missing.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harness.declared import COMPILATION, Average, Column, Declared, Metric, Seen, joined
from harness.failures import line_of
from harness.loading.toml_file import read_toml
from harness.schema import BASELINE, WHOLE, Extras, Job, Scalar

if TYPE_CHECKING:
    import torch

    from harness.timing.step import Variant

ByVariant = dict[str, dict[str, Scalar]]
OF = "\t"  # between a variant and the name of its number


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The job after its timed rounds. ``variants`` has eager under ``BASELINE``."""

    job: Job
    device: torch.device
    variants: Mapping[str, Variant]
    synchronize: Callable[[], None]


Between = Callable[[str], bool]


@contextmanager
def observing(
    when: str,
    device: torch.device,
    extras: Extras | None = None,
    numbers: dict[str, Scalar] | None = None,
    between: list[Between] | None = None,
) -> Iterator[dict[str, Scalar]]:
    """All metrics of the kind ``when``. The dict yielded (``numbers``, if given) is filled at the end.

    ``between`` holds, inside, the functions that metrics want called between samples.
    """
    numbers = {} if numbers is None else numbers
    batch: dict[str, Scalar] = {}
    with ExitStack() as stack:
        stack.callback(_join, numbers, batch)
        for name, module in _modules(when, extras or Extras()):
            read = stack.enter_context(_own_errors_logged(name, module.observe(device, batch)))
            if read is not None and between is not None:
                stack.callback(between.clear)
                between.append(_called_until_it_fails(name, read, between))
        yield numbers


def of_variant(variant: str, name: str) -> str:
    """The key of a variant's number among those of the rounds."""
    return f"{variant}{OF}{name}"


def by_variant(numbers: Mapping[str, Scalar]) -> ByVariant:
    """The numbers of the rounds, by variant; the whole job's are under ``WHOLE``."""
    variants: ByVariant = {}
    for key, value in numbers.items():
        variant, _, name = key.rpartition(OF)
        variants.setdefault(variant or WHOLE, {})[name] = value
    return variants


def complete_step(variant: Variant, extras: Extras, numbers: dict[str, Scalar]) -> None:
    """Calls ``complete`` of the metrics of the kind ``"step"`` for this variant."""
    for name, module in _modules("step", extras):
        with _logged(name):
            if hasattr(module, "complete"):
                module.complete(variant, numbers)


def _join(numbers: dict[str, Scalar], batch: dict[str, Scalar]) -> None:
    """Combines the numbers of this batch of rounds with the earlier ones."""
    metrics = {metric.name: metric for metric in declared().metrics}
    for name, value in batch.items():
        plain = name.rpartition(OF)[2]
        how = metrics[plain].over_batches if plain in metrics else "last"
        numbers[name] = joined(how, numbers[name], value) if name in numbers else value


def at_the_end(ended: Ended) -> ByVariant:
    """All metrics of the kinds ``"eager"`` (in one step) and ``"end"`` (one after the other)."""
    modules = list(_modules("eager", ended.job.extras))
    try:
        whole = of_eager_step(ended, modules)
    except Exception:  # two of them may conflict, or one with this model: try them one by one
        whole = {}
        for name, module in modules:
            with _logged(name):
                whole |= of_eager_step(ended, [(name, module)])
    by_variant: ByVariant = {WHOLE: whole}
    for name, module in _modules("end", ended.job.extras):
        with _logged(name):
            for variant, numbers in module.measure(ended).items():
                by_variant.setdefault(variant, {}).update(numbers)
    return by_variant


def of_eager_step(ended: Ended, modules: Sequence[tuple[str, ModuleType]]) -> dict[str, Scalar]:
    """The numbers of these modules of the kind ``"eager"``, from one step. The step's exceptions pass."""
    variant = ended.variants[BASELINE]
    numbers: dict[str, Scalar] = {}
    with ExitStack() as stack:
        for name, module in modules:
            stack.enter_context(_own_errors_logged(name, module.observe(ended, numbers)))
        variant.step()
    variant.release()
    return numbers


def declared_beside(file: str, **derive: Callable[[Seen], Scalar]) -> tuple[Metric, ...]:
    """The metrics of the TOML file beside this module's ``file``: a row each, or one for several in a row.

    A row has the fields of ``harness.declared.Metric``. ``derive``: of the metrics that are not stored.
    """
    return tuple(
        Metric(
            name,
            **{
                "unit": "",
                **fields,
                "sides": tuple(fields.get("sides", ())),
                "columns": tuple(Column(**column) for column in fields.get("columns", ())),
                "average": Average(**fields["average"]) if "average" in fields else None,
                "derive": derive.get(name),
            },
        )
        for names, fields in read_toml(Path(file).with_suffix(".toml")).items()
        for name in names.split()
    )


@cache
def declared() -> Declared:
    """The declarations of all metrics. Needs no torch."""
    return Declared(metric for _, module in _all() for metric in getattr(module, "METRICS", ()))


def of_compiling() -> tuple[str, ...]:
    """The names of the numbers that a compilation has, measured once."""
    return tuple(name for metric in declared().of_group(COMPILATION) for name in metric.names)


def _modules(when: str, extras: Extras) -> Iterator[tuple[str, ModuleType]]:
    for name, module in _all():
        wanted = getattr(module, "WANTED", ())
        if when == module.WHEN and (not wanted or any(getattr(extras, field) for field in wanted)):
            yield name, module


def _all() -> Iterator[tuple[str, ModuleType]]:
    files = (file for folder in __path__ for file in Path(folder).glob("*.py"))
    for name in sorted(file.stem for file in files if not file.stem.startswith("_")):
        module = None
        with _logged(name):  # a broken module loses only its own numbers
            module = importlib.import_module(f"{__name__}.{name}")
        if module is not None:
            yield name, module


def _called_until_it_fails(name: str, read: Between, between: list[Between]) -> Between:
    """``read``, which is not called again after an error of its own."""

    def guarded(variant: str) -> bool:
        try:
            return read(variant)
        except Exception as error:
            _say_failed(name, error)
            between.remove(guarded)
            return False

    return guarded


@contextmanager
def _own_errors_logged(name: str, context: AbstractContextManager[Any]) -> Iterator[Any]:
    """The metric's context. The metric's own errors are logged; errors of the observed code pass through."""
    try:
        entered = context.__enter__()
    except Exception as error:
        _say_failed(name, error)
        yield None
        return
    try:
        yield entered
    except BaseException:
        with suppress(Exception):  # usually the observed error itself
            context.__exit__(*sys.exc_info())
        raise
    with _logged(name):
        context.__exit__(None, None, None)


@contextmanager
def _logged(name: str) -> Iterator[None]:
    """Logs errors of the metric: a metric must never cost a measured result."""
    try:
        yield
    except Exception as error:
        _say_failed(name, error)


def _say_failed(name: str, error: Exception) -> None:
    print(f"no metric {name}: {type(error).__name__}: {line_of(error)}", flush=True)
