"""The calls that are judged: three steps in a row on the first data, and three on other data.

Nothing is restored between them: what a step leaves in buffers, weights and inputs counts. The form of their
results must be eager's without any tolerance, because no rounding changes it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from harness.counters import frames_given_up, graphs_compiled, latest_recompilation
from harness.devices import of
from harness.failures import JobFailed, line_of
from harness.parity.data import FIRST_DATA, Data, placed
from harness.parity.measure import digest, same_bits, sketch
from harness.parity.rule import Truth
from harness.schema import BREAKS_ON_OTHER_DATA, Failure, Status
from harness.tensors import (
    PLAIN,
    Tensors,
    as_tensor,
    has_memory,
    listed,
    named_leaves,
    named_tensors,
    shape_of,
)
from harness.timing.first_calls import stopwatch
from harness.timing.modes import Operations
from harness.timing.step import Take, Variant
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Of one step's output. ``aliases``: the inputs, weights and buffers that share a tensor's memory.

    ``together``: the other outputs that do. ``unlike``: why other leaves are not compared.
    """

    leaves: Mapping[str, Any]
    unlike: Mapping[str, str]
    shapes: Mapping[str, tuple[tuple[Any, ...], torch.dtype]]
    strides: Mapping[str, tuple[int, ...]]
    aliases: Mapping[str, frozenset[str]]
    together: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, variant: Variant, output: Any) -> Form:
        owners = dict[int, set[str]]()
        buffers = ((f"buffer.{name}", buffer) for name, buffer in variant.program.module.named_buffers())
        for name, tensor in (*variant.state(), *buffers):
            if has_memory(tensor) and tensor.numel():
                owners.setdefault(_address(tensor), set()).add(name)
        tensors = dict(named_tensors(output, "output"))
        leaves = dict(named_leaves(output, "output"))
        others = {name: value for name, value in leaves.items() if as_tensor(value) is None}
        strided = {n: t for n, t in tensors.items() if has_memory(t) and t.numel()}
        outputs = dict[int, set[str]]()
        for name, tensor in strided.items():
            outputs.setdefault(_address(tensor), set()).add(name)
        return cls(
            leaves={n: v for n, v in leaves.items() if isinstance(v, PLAIN)},
            unlike={n: type(v).__qualname__ for n, v in others.items() if not isinstance(v, PLAIN)},
            shapes={name: (shape_of(tensor), tensor.dtype) for name, tensor in tensors.items()},
            strides={name: _strides(tensor) for name, tensor in strided.items()},
            aliases={name: frozenset(owners.get(_address(t), ())) for name, t in strided.items()},
            together={name: frozenset(outputs[_address(t)] - {name}) for name, t in strided.items()},
        )

    def wrong_in(self, candidate: Form) -> Iterator[tuple[str, str]]:
        """The name of each output whose form is wrong, and a sentence."""
        yield from self._wrong_leaves(candidate)
        for name in self.shapes.keys() & candidate.shapes.keys():
            (shape, dtype), (ours, kind) = candidate.shapes[name], self.shapes[name]
            if shape != ours:
                yield name, f"shape {shape} instead of {ours}"
            elif dtype != kind:
                yield name, f"dtype {dtype} instead of {kind}"
        for name in self.aliases.keys() & candidate.aliases.keys():
            before, now = self.aliases[name], candidate.aliases[name]
            if bool(before) != bool(now):
                which = ", ".join(sorted(before or now)[:3])
                yield name, f"{'no longer ' if before else ''}shares its memory with {which}"

    def _wrong_leaves(self, candidate: Form) -> Iterator[tuple[str, str]]:
        for name, value in self.leaves.items():
            if name not in candidate.leaves:
                if not isinstance(value, float):  # which is compared as a tensor
                    yield name, f"missing; eager's is {value!r}"
                continue
            other = candidate.leaves[name]
            both = isinstance(value, float) and isinstance(other, float)
            if not both and (type(other) is not type(value) or str(other) != str(value)):
                yield name, f"{other!r} instead of {value!r}"
        for name in candidate.leaves.keys() - self.leaves.keys() - self.unlike.keys():
            yield name, f"{candidate.leaves[name]!r}, which eager has not"

    def steady(self, again: Form) -> Form:
        """Without the leaves that differ from eager's second step: a count, a time."""
        why = "eager's next call has another"
        moved = {
            name: why
            for name, value in self.leaves.items()
            if not isinstance(value, float) and str(again.leaves.get(name, again)) != str(value)
        }
        leaves = {name: value for name, value in self.leaves.items() if name not in moved}
        return replace(self, leaves=leaves, unlike={**self.unlike, **moved})

    def not_compared(self) -> tuple[str, ...]:
        """A sentence on the outputs that are no tensors, numbers or texts; none if all are."""
        named = [f"{name} ({why})" for name, why in self.unlike.items()]
        return (f"{listed(named, 5)}: no tensors, numbers or texts that can be compared",) if named else ()

    def shared_outputs(self, candidate: Form) -> str:
        """A note on an output that shares the memory of another one as eager's does not; "" if none does."""
        for name, ours in self.together.items():
            if others := sorted(candidate.together.get(name, frozenset()) - ours):
                return (
                    f"{others[0]} shares its memory with {name}, unlike eager's: a change of one changes both"
                )
        return ""

    def other_strides(self, candidate: Form) -> str:
        """A note on outputs with another layout; "" if there are none."""
        names = [
            name for name, strides in self.strides.items() if candidate.strides.get(name, strides) != strides
        ]
        if not names:
            return ""
        first = names[0]
        more = f", and {len(names) - 1} more" if len(names) > 1 else ""
        return f"{first} has strides {candidate.strides[first]}, eager's {self.strides[first]}{more}"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What eager says about steps in a row on one data.

    ``truths``: of each step; one, if each step of eager repeats the first.
    """

    data: Data
    truths: Sequence[Truth]
    eager: Row
    exact: Row | None = None

    @property
    def first(self) -> int:
        """The number of the first of these calls."""
        return OTHER if self.data.inputs else FIRST

    @property
    def calls(self) -> range:
        return range(self.first, self.first + IN_A_ROW)

    def at(self, number: int) -> Truth:
        place = number - self.first
        return self.truths[place if place < len(self.truths) else 0]

    @property
    def repeated(self) -> frozenset[str]:
        """The tensors of which each step of eager computes the same values."""
        names = self.truths[0].eager
        return frozenset(name for name in names if all(self.steady(name, call) for call in self.calls))

    def steady(self, name: str, number: int) -> bool:
        """Whether eager computes the same values of this tensor as at the first of the calls."""
        here, there = self.at(number), self.truths[0]
        return here is there or (name in there.eager and same_bits(here.eager[name], there.eager[name]))


@dataclass(slots=True, kw_only=True)
class FirstCalls(Row):
    """A candidate's first steps. ``last``: the output of the last one itself, until the next call.

    ``drawn``: the random generators that the second one uses.
    """

    form: Form
    last: Any = None
    drawn: list[str] = field(default_factory=list)

    def overwritten(self, take: Take) -> list[str]:
        """After a call on other data: the outputs of the call before that it has changed.

        (On the same data a call may write the same bits again. Other data changes what is an alias of it.)
        """
        kept, last, self.last = self.results[-1], self.last, None
        tensors = {
            n: t for n, t in named_tensors(last, "output") if n in kept and not self.form.aliases.get(n)
        }
        strided = {name: tensor for name, tensor in tensors.items() if has_memory(tensor)}
        return [name for name, tensor in strided.items() if not same_bits(take(name, tensor), kept[name])]


def first_calls(bench: Workbench, variant: Variant, seconds: list[float]) -> FirstCalls:
    """Three steps in a row. Appends the seconds of each. Of generating steps the last starts anew."""
    loss, output = bench.step(variant, stopwatch(seconds))
    calls = FirstCalls(results=[bench.results(variant, loss, output)], form=Form.of(variant, output))
    del loss, output
    watching = watching_generators(bench.device, calls.drawn, stopwatch(seconds))
    second = bench.step(variant, watching, restored=False)
    if not bench.generates:
        calls.results.append(bench.results(variant, *second))
    del second
    loss, calls.last = bench.step(variant, stopwatch(seconds), restored=bench.generates)
    calls.results.append(bench.results(variant, loss, calls.last))
    calls.after = State.of(variant)
    return calls


def row_on(bench: Workbench, variant: Variant, data: Data, steps: int = IN_A_ROW) -> Row:
    """Steps in a row from the initial state, which the variant has again afterwards.

    There are none if nothing of the data can be changed.
    """
    row, compiled = Row(), (graphs_compiled(), frames_given_up())
    with placed(variant, data) as row.changed:
        if row.changed or data == FIRST_DATA:
            row.before = State.of(variant)
            row.results += (bench.run(variant, restored=False) for _ in range(steps))
            row.after = State.of(variant)
    if (graphs_compiled(), frames_given_up()) != compiled:
        row.compiled = latest_recompilation() or "torch gives no reason"
    return row


def on_data(
    bench: Workbench, variant: Variant, data: Data, inside: AbstractContextManager[object] | None = None
) -> Tensors:
    """The results of one step from the initial state, which the variant has again afterwards."""
    with placed(variant, data):
        return bench.run(variant, inside, restored=False)


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


# -- random numbers -------------------------------------------------------------------


@contextmanager
def watching_generators(
    device: torch.device, drawn: list[str], inside: AbstractContextManager[Any]
) -> Iterator[None]:
    """``inside``; adds to ``drawn`` the names of the generators that the code in it uses."""
    before = _generators(device)
    with inside:
        yield
    after = _generators(device)
    drawn += [name for name, state in after.items() if name in before and before[name] != state]


def _generators(device: torch.device) -> dict[str, Any]:
    states: dict[str, Any] = {"torch's CPU generator": torch.get_rng_state().tolist()}
    if (of_device := of(device).generator_state()) is not None:
        states["the device's generator"] = of_device.tolist()
    states["Python's random"] = random.getstate()
    if (numpy := sys.modules.get("numpy")) is not None:
        kind, key, *rest = numpy.random.get_state()
        states["numpy.random"] = (kind, key.tobytes(), *rest)
    return states


class Drawing(Operations):
    """Notes the operations that draw random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, None] = {}

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.names[func.overloadpacket.__name__] = None
        return func(*args, **kwargs)


# -- form -----------------------------------------------------------------------------


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Of dimensions that have more than one place: the others' mean nothing."""
    return tuple(stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)
