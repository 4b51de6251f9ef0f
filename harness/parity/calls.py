"""The calls that are judged: six steps in a row, of which the last three have other data.

Nothing is restored between them: what a step leaves in buffers, weights and inputs counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.counters import frames_given_up, graphs_compiled, latest_recompilation
from harness.devices import of
from harness.failures import JobFailed, line_of
from harness.parity.data.balance import NONE, Factors, balance_of
from harness.parity.data.other_data import Data, placed
from harness.parity.form import Form, overwritten
from harness.parity.measure import digest, same_bits, sketch
from harness.parity.noise import Noise, loudness
from harness.parity.rule import RUNS
from harness.schema import BREAKS_ON_OTHER_DATA, Failure, Status
from harness.tensors import Tensors
from harness.timing.first_calls import stopwatch
from harness.timing.step import Variant
from harness.timing.workbench import Workbench

FIRST, OTHER = 1, 4  # the first call on the first and on the other data
BASE = {1: FIRST, 2: FIRST, 3: FIRST, 4: OTHER, 5: OTHER, 6: OTHER}
ON_OTHER = (4, 5, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Weights, inputs and target: a sketch and a digest of each."""

    sketches: Tensors
    digests: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, variant: Variant) -> State:
        tensors = dict(variant.state())
        plain = {n: t for n, t in tensors.items() if type(t) in (torch.Tensor, torch.nn.Parameter)}
        return cls(
            sketches={name: sketch(name, tensor) for name, tensor in tensors.items()},
            digests={name: digest(tensor) for name, tensor in plain.items() if tensor.numel()},
        )


@dataclass(slots=True, kw_only=True)
class Calls:
    """Results of calls in a row, by the call's number. A call that would repeat an earlier one has none.

    ``noisy``: of noisy runs of the first call on other data. ``before`` and ``after``: the state around the
    calls on the first and on other data. ``changed``: what the other data consists of. ``compiled``: why
    graphs were compiled for it. ``overwritten``: outputs of the first call that the second has changed.
    """

    results: dict[int, Tensors] = field(default_factory=dict)
    noisy: list[Tensors] = field(default_factory=list)
    before: dict[int, State] = field(default_factory=dict)
    after: dict[int, State] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    compiled: str = ""
    form: Form | None = None
    overwritten: tuple[str, ...] = ()
    held: Any = None  # the third call's output itself, until a call on other data

    def step(self, number: int, bench: Workbench, variant: Variant) -> None:
        """Runs a step without restoring anything."""
        self.results[number] = bench.run(variant, restored=False)

    def release(self, bench: Workbench) -> None:
        """After a call on other data: whether it has changed the output of the call before.

        (On the same data a call may write the same bits again.) Other data changes what is an alias of it.
        """
        kept = {
            n: t for n, t in self.results.get(3, {}).items() if self.form and not self.form.aliases.get(n)
        }
        self.overwritten = self.overwritten or tuple(overwritten(kept, self.held, bench.take))
        self.held = None


def first_calls(bench: Workbench, variant: Variant, seconds: list[float]) -> Calls:
    """Three steps in a row. Appends the seconds of each. A generating step is restored before the third."""
    calls = Calls()
    variant.restore()
    loss, output = bench.step(variant, stopwatch(seconds))
    calls.results[1], calls.form = bench.results(variant, loss, output), Form.of(variant, output)
    del loss
    second = bench.step(variant, stopwatch(seconds), restored=False)
    calls.overwritten = tuple(overwritten(calls.results[1], output, bench.take))
    if not bench.generates:
        calls.results[2] = bench.results(variant, *second)
    del output, second
    third = bench.step(variant, stopwatch(seconds), restored=bench.generates)
    calls.results[3], calls.held = bench.results(variant, *third), third[1]
    del third
    calls.after[FIRST] = State.of(variant)
    return calls


def continue_on_other_data(
    bench: Workbench,
    variant: Variant,
    calls: Calls,
    data: Data,
    *,
    numbers: Sequence[int] = ON_OTHER,
    noisy: bool = False,
) -> None:
    """The calls on other data. Afterwards the variant has its first weights, inputs and buffers again."""
    compiled = graphs_compiled(), frames_given_up()
    try:
        with placed(variant, data) as calls.changed:
            if not calls.changed:
                return
            calls.before[OTHER] = State.of(variant)
            if noisy:
                calls.noisy = noisy_runs(bench, variant)
            for number in numbers:
                calls.step(number, bench, variant)
                calls.release(bench)
            calls.after[OTHER] = State.of(variant)
    finally:
        variant.restore()
    if (graphs_compiled(), frames_given_up()) != compiled:
        calls.compiled = latest_recompilation() or "torch gives no reason"


def noisy_runs(bench: Workbench, eager: Variant, seed: int = 0, coarseness: float = 1.0) -> list[Tensors]:
    """Results of the next step with noise, ``RUNS`` times. Leaves the variant's state as it is.

    ``seed``: the number of the neighbor; 0 is the data itself. ``coarseness``: multiple of the loudness.
    """
    runs: list[Tensors] = []
    for run in range(RUNS):
        with eager.kept():
            noise = Noise(coarseness * loudness(bench.precision), RUNS * seed + run)
            runs.append(bench.run(eager, noise, restored=False))
    return runs


def balance(bench: Workbench) -> Factors:
    """The factors of the weights on other data; none if eager fails there, which is found later."""
    copy = bench.variant()
    try:
        with placed(copy, Data(weights=True, inputs=True)):
            return balance_of(copy.program.module, lambda: bench.output(copy))
    except Exception as error:
        check_device(bench, error)
        print(f"the weights are not balanced: {line_of(error)}", flush=True)
        return NONE


def check_device(bench: Workbench, error: Exception) -> None:
    """After an error on other data. Raises ``JobFailed`` if the device has stopped working in this process.

    An index out of range is an exception on a CPU, and on a GPU the end of the process.
    """
    if not of(bench.device).healthy():
        failure = Failure(kind=BREAKS_ON_OTHER_DATA, message=line_of(error), phase="eager")
        raise JobFailed(Status.EAGER_1ST_RUN_FAIL, failure) from error


def in_a_row(
    bench: Workbench, variant: Variant, data: Data, numbers: Sequence[int], *, noisy: bool = False
) -> tuple[Calls, str]:
    """Calls of eager or fp64 from the start, and a sentence if there are none on other data."""
    calls = Calls()
    variant.restore()
    calls.before[FIRST] = State.of(variant)
    for number in numbers:
        if number < OTHER:
            calls.step(number, bench, variant)
    calls.after[FIRST] = State.of(variant)
    return calls, eager_on_other_data(bench, variant, calls, data, numbers, noisy=noisy)


def eager_on_other_data(
    bench: Workbench,
    variant: Variant,
    calls: Calls,
    data: Data,
    numbers: Sequence[int],
    *,
    noisy: bool = True,
) -> str:
    """Continues the row. Returns a sentence if there are no results."""
    later = tuple(number for number in numbers if number >= OTHER)
    try:
        continue_on_other_data(bench, variant, calls, data, numbers=later, noisy=noisy)
    except Exception as error:  # the model's code may not take other values
        check_device(bench, error)
        calls.changed = ()
        return f"eager fails on other data ({type(error).__name__}: {line_of(error)})"
    return "" if calls.changed else "no input can be changed"


def on_data(bench: Workbench, variant: Variant, data: Data) -> Tensors:
    """The results of one call on this data, from the initial state. Restores the variant."""
    variant.restore()
    try:
        with placed(variant, data):
            return bench.run(variant, restored=False)
    finally:
        variant.restore()


def repeats(first: Tensors, second: Tensors) -> bool:
    """Whether both have the same tensors, bit by bit."""
    return first.keys() == second.keys() and all(same_bits(t, second[name]) for name, t in first.items())
