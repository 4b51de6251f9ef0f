"""Steps in a row: six consecutive steps without restoring anything, the last three on other data.

The first three are a candidate's first calls. Then its weights and inputs change in place
(``harness.parity.other_data``), and three more steps follow. Eager and fp64 run the same steps. This finds
what a single step from a restored state cannot show: buffers that are not updated, weights or inputs that
a step damages, inputs or weights that the code read only once, results that change from call to call.
Three steps on each data hold one that is wrong every third time.

Of each large tensor, random blocks are kept (``sampled``), so that the results of six steps need little
memory and little time. The first and the third call are compared in full, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from harness.counters import frames_given_up, graphs_compiled, latest_recompilation
from harness.failures import line_of
from harness.parity.distance import BLOCK, is_exact_kind, peak, rms, rmse, same_bits, wide
from harness.parity.other_data import WEIGHTS, other_data
from harness.parity.parts.balance import NONE, Factors, any_has_several_weights, balance_of
from harness.parity.parts.slopes import PartSlopes
from harness.parity.reference import Reference, Rule, Tensors, family_of, make_reference
from harness.parity.rule import compare, failing
from harness.schema import Parity, TensorError
from harness.tensors import named_tensors
from harness.timing.first_calls import stopwatch
from harness.timing.step import Variant
from harness.timing.workbench import Workbench

FIRST, OTHER = 1, 4  # the first step on the first and on the other data
BASE = {2: FIRST, 3: FIRST, 5: OTHER, 6: OTHER}  # a step -> an earlier step on the same data
STEPS = 6
ON_OTHER = (4, 5, 6)
MOST = 32 * BLOCK  # elements that are kept of a tensor
# units; of a part's slope. Nearly equal probabilities of an attention are rounded alike, so their roundings
# do not cancel: with factors in TLTransformer's attention, untouched Inductor had a slope of 1.4 units
FLOOR_OF_SEVERAL = 1.25


def sampled(tensor: torch.Tensor, worst: Sequence[int] = ()) -> torch.Tensor:
    """A copy: of small tensors everything, of large ones ``MOST`` elements, always the same ones (flat).

    These are random blocks and the last elements; ``worst``: the numbers of blocks that replace random ones.
    """
    if tensor.numel() <= MOST:
        return tensor.detach().clone()
    flat = tensor.detach().flatten()
    generator = torch.Generator().manual_seed(flat.numel())
    places = torch.randint(flat.numel() // BLOCK, (MOST // BLOCK - 1,), generator=generator).tolist()
    places[: len(worst)] = worst
    starts = [*(BLOCK * place for place in places), flat.numel() - BLOCK]
    return torch.cat([flat[start : start + BLOCK] for start in starts])


def sampled_by_name(_: str, tensor: torch.Tensor) -> torch.Tensor:
    return sampled(tensor)


def sample(tensors: Tensors) -> dict[str, torch.Tensor]:
    return {name: sampled(tensor) for name, tensor in tensors.items()}


@dataclass(slots=True, kw_only=True)
class Row:
    """Sampled results of consecutive steps, by the step's number; a step that was not run has none.

    ``before`` and ``after``: weights and inputs around the steps on the first data and on the other data.
    ``changed``: what the other data consists of. ``factors``: of its weights. ``compiled``: why graphs were
    compiled for it.
    """

    results: dict[int, Tensors] = field(default_factory=dict)
    before: dict[int, Tensors] = field(default_factory=dict)
    after: dict[int, Tensors] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    factors: Factors = field(default_factory=dict)
    compiled: str = ""

    def begin(self, number: int, variant: Variant) -> None:
        self.before[number] = sample(dict(variant.state()))

    def step(self, number: int, bench: Workbench, variant: Variant) -> None:
        """Runs a step without restoring anything."""
        made = bench.step(variant, restored=False)
        self.results[number] = variant.results(*made, take=sampled_by_name)

    def end(self, number: int, variant: Variant) -> None:
        self.after[number] = sample(dict(variant.state()))


@dataclass(slots=True, kw_only=True)
class FirstCalls:
    """The full results of a candidate's first and third call, and the row that they belong to."""

    first: Tensors
    settled: Tensors
    row: Row


def first_calls(bench: Workbench, variant: Variant, seconds: list[float]) -> FirstCalls:
    """Three steps in a row. Appends the seconds of each. A generating step is restored before the third."""
    row = Row()
    variant.restore()
    made = bench.step(variant, stopwatch(seconds))
    first = bench.comparable(variant.results(*made, lasting=True))
    made = bench.step(variant, stopwatch(seconds), restored=False)
    if bench.generates:
        del made
        return FirstCalls(first=first, settled=bench.run(variant, stopwatch(seconds)), row=row)
    row.results = {1: sample(first), 2: variant.results(*made, take=sampled_by_name)}
    made = bench.step(variant, stopwatch(seconds), restored=False)
    settled = variant.results(*made)
    row.results[3] = sample(settled)
    row.end(FIRST, variant)
    return FirstCalls(first=first, settled=settled, row=row)


def continue_on_other_data(
    bench: Workbench, variant: Variant, row: Row, *, weights: bool, steps: tuple[int, ...] = ON_OTHER
) -> None:
    """The steps on other data. Afterwards the variant has its first weights, inputs and buffers again."""
    compiled = graphs_compiled(), frames_given_up()
    try:
        with other_data(variant, weights=weights, factors=row.factors) as row.changed:
            if not row.changed:
                return
            row.begin(OTHER, variant)
            for number in steps:
                row.step(number, bench, variant)
            row.end(OTHER, variant)
    finally:
        variant.restore()
    if (graphs_compiled(), frames_given_up()) != compiled:
        row.compiled = latest_recompilation() or "torch gives no reason"


def balance(bench: Workbench) -> Factors:
    """The factors of the weights on other data; none if eager fails there, which is found later."""
    copy = bench.variant()
    try:
        with other_data(copy, weights=True):
            return balance_of(copy.program.module, lambda: bench.output(copy))
    except Exception as error:
        print(f"the weights are not balanced: {line_of(error)}", flush=True)
        return NONE


def part_slopes(bench: Workbench, exact: Variant, row: Row) -> PartSlopes | None:
    """The directions of the parts of the fp64 run on other data; None if they cannot be made."""

    def run(context: Callable[[], AbstractContextManager[object]], *, inputs: bool = True) -> Tensors:
        exact.restore()
        weights = WEIGHTS in row.changed
        with other_data(exact, weights=weights, inputs=inputs, factors=row.factors), context():
            return sample(dict(named_tensors(bench.output(exact), "output")))

    several = any_has_several_weights(exact.program.module)
    floor = FLOOR_OF_SEVERAL * bench.precision.unit if several else 0.0
    try:
        return PartSlopes.measure(run, partial(run, nullcontext, inputs=False), floor)
    except Exception as error:  # the rest of the check does not need them
        print(f"no slopes of parts: {line_of(error)}", flush=True)
        return None
    finally:
        exact.restore()


# -- what is expected --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Eager's and fp64's results of the row. ``why_not``: why there are none on other data."""

    references: Mapping[int, Reference]
    eager: Row
    exact: Row | None
    why_not: str = ""

    @property
    def changed(self) -> tuple[str, ...]:
        return self.eager.changed

    def at(self, number: int) -> Reference:
        """The reference of this step. If eager repeats an earlier step, it is that step's."""
        return self.references.get(number) or self.references[BASE[number]]

    def steady(self, name: str, number: int) -> bool:
        """Whether eager computes the same values of this tensor as at the earlier step on the same data."""
        one, two = self.at(number), self.at(BASE[number])
        if one is two:
            return True
        here, there = one.eager.get(name), two.eager.get(name)
        return here is not None and there is not None and same_bits(here, there)


def eager_row(bench: Workbench, variant: Variant, row: Row, first: Tensors, second: Tensors) -> str:
    """Continues ``row`` after eager's first and second step, whose results these are.

    If they are equal bit by bit, further steps on the same data would repeat them and are not run. Returns a
    sentence if there are no results on other data.
    """
    row.results[1] = sample(first)
    repeats = second is first
    if not repeats:
        row.results[2] = sample(second)
        row.step(3, bench, variant)
    row.end(FIRST, variant)
    return _on_other_data(bench, variant, row, weights=True, repeats=repeats)


def new_row(bench: Workbench, variant: Variant, *, weights: bool, repeats: bool) -> tuple[Row, str]:
    """A row of its own, with eager or fp64, from the start."""
    row = Row()
    variant.restore()
    row.begin(FIRST, variant)
    for number in (1,) if repeats else (1, 2, 3):
        row.step(number, bench, variant)
    row.end(FIRST, variant)
    return row, _on_other_data(bench, variant, row, weights=weights, repeats=repeats)


def exact_row(bench: Workbench, variant: Variant, first: Tensors, eager: Row) -> Row:
    """fp64's row after its first step: the same steps as eager's."""
    row = Row(results={1: sample(first)}, factors=eager.factors)
    for number in sorted(eager.results.keys() & {2, 3}):
        row.step(number, bench, variant)
    row.end(FIRST, variant)
    steps = tuple(sorted(eager.results.keys() & set(ON_OTHER)))
    continue_on_other_data(bench, variant, row, weights=WEIGHTS in eager.changed, steps=steps)
    return row


def _on_other_data(bench: Workbench, variant: Variant, row: Row, *, weights: bool, repeats: bool) -> str:
    steps = (OTHER,) if repeats else ON_OTHER
    try:
        continue_on_other_data(bench, variant, row, weights=weights, steps=steps)
    except Exception as error:  # the model's code may not take other values
        row.changed = ()
        return f"eager fails on other data ({type(error).__name__}: {line_of(error)})"
    return "" if row.changed else "no input can be changed"


def expect(rule: Rule, row: Row, exact: Row | None, full: Reference | None, why_not: str) -> Expected:
    """The references of each step that eager ran. ``full``: the reference of the first step.

    On other data, eager can be so far from fp64 that neither is a reference. This data is then not judged.
    """
    references = {}
    usable = exact is not None and (full is None or full.exact is not None)
    for number, eager in row.results.items():
        if number >= OTHER and not row.changed:
            continue
        truth = exact.results.get(number) if exact is not None and usable else None
        found = make_reference(truth, eager, eager, rule)
        if number >= OTHER and truth is not None and found.exact is None and rule.name == "scaled":
            why_not = "eager's outputs are rounding noise there"
            continue
        spread = full.spread if full is not None else {}
        references[number] = replace(found, spread={name: spread.get(name, 0.0) for name in eager})
    return Expected(references=references, eager=row, exact=exact if usable else None, why_not=why_not)


# -- judging ---------------------------------------------------------------------------------


def judge_step(
    expected: Expected, row: Row, number: int, excused: Mapping[str, TensorError]
) -> Parity | None:
    """Parity of the tensors of one step that are not what they were at the earlier step on the same data."""
    names = _moved(expected, row, number)
    if not names:
        return None
    made = {name: tensor for name, tensor in row.results[number].items() if name in names}
    return compare(expected.at(number).of(names), made, excused=excused)


def any_fails(expected: Expected, row: Row, numbers: tuple[int, ...]) -> bool:
    """Whether a tensor fails at one of these steps, without what kinks excuse."""
    judged = (judge_step(expected, row, number, {}) for number in numbers)
    return any(found is not None and found.failed for found in judged)


def failing_step(expected: Expected, row: Row, number: int) -> tuple[str, ...]:
    """The names of the tensors that fail at a step, whether or not they are what they were before."""
    return failing(expected.at(number), row.results[number])


def is_stale(expected: Expected, row: Row, number: int) -> bool:
    """Whether an output is what it was on the first data, where eager's is not."""
    first, now = row.results[FIRST], row.results[number]
    before, after = expected.at(FIRST).eager, expected.at(number).eager
    return number >= OTHER and any(
        same_bits(first[name], now[name]) and not same_bits(before[name], after[name])
        for name in first.keys() & now.keys() & before.keys() & after.keys()
        if family_of(name) == "value"
    )


def _moved(expected: Expected, row: Row, number: int) -> set[str]:
    """The tensors that have to be judged at this step: all, without those that repeat an earlier step."""
    made = row.results[number]
    names = {*made, *expected.at(number).eager}
    if number not in BASE:
        return names
    before = row.results[BASE[number]]
    return {
        name
        for name in names
        if name not in made
        or name not in before
        or not expected.steady(name, number)
        or not same_bits(made[name], before[name])
    }


def judge_state(expected: Expected, row: Row, number: int, rule: Rule) -> list[TensorError]:
    """The weights and inputs that are wrong after the steps on one data.

    What eager leaves as it is must be left as it is, bit by bit. What eager changes is judged like a result.
    """
    before, after, made = (
        found.get(number, {}) for found in (expected.eager.before, expected.eager.after, row.after)
    )
    wrong, moved = [], set()
    for name, tensor in after.items():
        given, was = made.get(name), before.get(name)
        if was is None or given is None or given.shape != tensor.shape or given.dtype != tensor.dtype:
            continue  # the compiler has put other weights in their place
        if not same_bits(was, tensor):
            moved.add(name)
        elif not same_bits(tensor, given):
            wrong.append(_damaged(name, tensor, given))
    if moved:
        exact = expected.exact.after.get(number) if expected.exact is not None else None
        eager = {name: after[name] for name in moved}
        found = compare(make_reference(exact, eager, eager, rule), {name: made[name] for name in moved})
        wrong += [found.worst] if found.failed and found.worst is not None else []
    return wrong


def _damaged(name: str, was: torch.Tensor, now: torch.Tensor) -> TensorError:
    exact = is_exact_kind(was)
    return TensorError(
        name=name,
        numel=was.numel(),
        scale=1.0 if exact else rms(was),
        eager_rmse=0.0,
        candidate_rmse=rmse(was, now),
        allowed=0.0,
        candidate_max=0.0 if exact else peak(wide(was) - wide(now)),
        allowed_max=0.0,
        failure="a step changes it; eager's step leaves it as it is",
    )
