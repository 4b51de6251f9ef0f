"""The calls that are judged: three steps in a row on the first data, and three on other data.

Nothing is restored between them: what a step leaves in buffers, weights and inputs counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.counters import frames_given_up, graphs_compiled, latest_recompilation
from harness.devices import of
from harness.failures import JobFailed, line_of
from harness.parity.chance import watching_generators
from harness.parity.data.other_data import FIRST_DATA, Data, placed
from harness.parity.form import Form, overwritten
from harness.parity.measure import digest, same_bits, sketch
from harness.schema import BREAKS_ON_OTHER_DATA, Failure, Status
from harness.tensors import Tensors
from harness.timing.first_calls import stopwatch
from harness.timing.step import Variant
from harness.timing.workbench import Workbench

IN_A_ROW = 3
FIRST, OTHER = 1, 1 + IN_A_ROW  # numbers of the first call on the first and on the other data


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
class Row:
    """Results of steps in a row on one data. Eager has one step where the others repeat it.

    ``before`` and ``after``: the state around the steps; None of a generating step. ``changed``: what the
    other data consists of. ``compiled``: why graphs were compiled for it.
    """

    results: list[Tensors] = field(default_factory=list)
    before: State | None = None
    after: State | None = None
    changed: tuple[str, ...] = ()
    compiled: str = ""


@dataclass(slots=True, kw_only=True)
class FirstCalls(Row):
    """A candidate's first steps. ``last``: the output of the last one itself, until the next call.

    ``drawn``: the random generators that the second one uses.
    """

    form: Form
    last: Any = None
    drawn: list[str] = field(default_factory=list)

    def overwritten(self, bench: Workbench) -> list[str]:
        """After a call on other data: the outputs of the call before that it has changed.

        (On the same data a call may write the same bits again. Other data changes what is an alias of it.)
        """
        kept = {n: t for n, t in self.results[-1].items() if not self.form.aliases.get(n)}
        last, self.last = self.last, None
        return list(overwritten(kept, last, bench.take))


def first_calls(bench: Workbench, variant: Variant, seconds: list[float]) -> FirstCalls:
    """Three steps in a row. Appends the seconds of each. Of generating steps the last starts anew."""
    loss, output = bench.step(variant, stopwatch(seconds))
    calls = FirstCalls(results=[bench.results(variant, loss, output)], form=Form.of(variant, output))
    del loss, output
    second = bench.step(variant, _watched(seconds, bench, calls.drawn), restored=False)
    if not bench.generates:
        calls.results.append(bench.results(variant, *second))
    del second
    loss, calls.last = bench.step(variant, stopwatch(seconds), restored=bench.generates)
    calls.results.append(bench.results(variant, loss, calls.last))
    calls.after = State.of(variant)
    return calls


@contextmanager
def _watched(seconds: list[float], bench: Workbench, drawn: list[str]) -> Iterator[None]:
    with watching_generators(bench.device, drawn), stopwatch(seconds):
        yield


def row_on(bench: Workbench, variant: Variant, data: Data, steps: int = IN_A_ROW) -> Row:
    """Steps in a row from the initial state, which the variant has again afterwards.

    There are none if nothing of the data can be changed.
    """
    row, compiled = Row(), (graphs_compiled(), frames_given_up())
    variant.restore()
    try:
        with placed(variant, data) as row.changed:
            if row.changed or data == FIRST_DATA:
                row.before = State.of(variant)
                row.results += (bench.run(variant, restored=False) for _ in range(steps))
                row.after = State.of(variant)
    finally:
        variant.restore()
    if (graphs_compiled(), frames_given_up()) != compiled:
        row.compiled = latest_recompilation() or "torch gives no reason"
    return row


def on_data(
    bench: Workbench, variant: Variant, data: Data, inside: AbstractContextManager[object] | None = None
) -> Tensors:
    """The results of one step from the initial state, which the variant has again afterwards."""
    variant.restore()
    try:
        with placed(variant, data):
            return bench.run(variant, inside, restored=False)
    finally:
        variant.restore()


def check_device(bench: Workbench, error: Exception) -> None:
    """After an error on other data. Raises ``JobFailed`` if the device has stopped working in this process.

    An index out of range is an exception on a CPU, and on a GPU the end of the process.
    """
    if not of(bench.device).healthy():
        failure = Failure(kind=BREAKS_ON_OTHER_DATA, message=line_of(error), phase="eager")
        raise JobFailed(Status.EAGER_1ST_RUN_FAIL, failure) from error


def repeats(first: Tensors, second: Tensors) -> bool:
    """Whether both have the same tensors, bit by bit."""
    return first.keys() == second.keys() and all(same_bits(t, second[name]) for name, t in first.items())
