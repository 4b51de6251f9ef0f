"""The checks of one job: a list of calls, each judged by ``harness.parity.rule``, and a verdict a candidate.

What eager, noisy eager and fp64 compute is made once for all candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.devices import of
from harness.failures import line_of
from harness.parity import calls as row
from harness.parity.calls import BASE, FIRST, ON_OTHER, OTHER, Calls
from harness.parity.chance import Chance, chance_of
from harness.parity.check import FINE, Check, Expected
from harness.parity.data.other_data import FIRST_DATA, Data, placed
from harness.parity.directions import Directions
from harness.parity.field import judge_field
from harness.parity.form import Form
from harness.parity.measure import family_of, same_bits, sketch
from harness.parity.neighbors import Neighbors
from harness.parity.noise import Noise, loudness
from harness.parity.rule import NEIGHBORS, RUNS, Rule, Truth
from harness.parity.told.figures import write
from harness.program import Compiled
from harness.schema import Parity, Status
from harness.tensors import Tensors, named_tensors
from harness.timing.step import Take, Variant
from harness.timing.workbench import TOKENS, Results, Workbench, cloned

Verdict = tuple[Status, Parity, tuple[str, ...]]
"""Status, parity and notes."""


class Checks:
    """The checks of one job. ``begin``, ``go_on`` and ``open`` come first, in this order.

    ``drawn``: the generators that eager's step uses. ``first_data_only``: why no other data is used ("": it
    is used).
    """

    truth: Truth  # of the first call; set by ``open``
    spread: Mapping[str, float]  # distance of two runs of eager, relative to each tensor's size

    def __init__(self, bench: Workbench, rule: Rule, drawn: Sequence[str], first_data_only: str = "") -> None:
        self.bench = bench
        self._first_data_only = first_data_only
        self.rule = rule
        self._drawn = drawn
        self._eager = Calls()
        self.form: Form | None = None
        self.data = FIRST_DATA
        self.expected: Expected | None = None
        self._of_inputs: Expected | None = None  # other inputs, but the first weights
        self._chance: Chance | None = None
        self._pair: list[Variant] = []  # eager and fp64, if neighbors were looked at
        self._neighbors: dict[tuple[bool, bool, str, float], Neighbors] = {}
        self.why_not = "a generating step is compared on its own data, and restored before each comparison"

    @property
    def take(self) -> Take:
        """What is kept of a result."""
        return cloned if self.rule.name == "field" else sketch

    # -- eager and fp64 ------------------------------------------------------------

    def begin(self, eager: Variant) -> None:
        """Before eager's first step."""
        if not self.bench.generates and not self._first_data_only:
            self.data = Data(weights=True, inputs=True, factors=row.balance(self.bench))
        self._eager.before[FIRST] = row.State.of(eager)

    def go_on(self, eager: Variant, first: Results, second: Results, form: Form) -> None:
        """After eager's first two steps in a row. ``second`` is ``first`` where it repeats it.

        Then further steps on the same data would repeat them, too, and are not run.
        """
        self.form = form
        bench, calls = self.bench, self._eager
        if bench.generates:
            return
        calls.results[1] = first
        numbers = [OTHER]
        if second is not first:
            calls.results[2] = second
            calls.step(3, bench, eager)
            numbers = [*ON_OTHER]
        calls.after[FIRST] = row.State.of(eager)
        self.why_not = self._first_data_only or row.eager_on_other_data(
            bench, eager, calls, self.data, numbers
        )

    def open(self, eager: Variant, first: Results, second: Results) -> None:
        """Runs fp64 and noisy eager, and makes the truths.

        ``first`` and ``second``: eager from the same state.
        """
        exact, calls, directions = self._exact()
        self.truth = Truth.of(self.rule, exact, first, self._noisy(eager, range(RUNS)))
        self.spread = {name: _distance(self.truth, name, second) for name in {*first, *second}}
        if not self.bench.generates:
            self.expected = self._expect(self._eager, calls, directions, self.data, self.why_not)

    def _noisy(self, eager: Variant, seeds: Sequence[int]) -> Iterator[Tensors]:
        """Noisy runs of the first call."""
        for seed in seeds if self.rule.name == "noise" else ():
            yield self.bench.run(eager, Noise(loudness(self.bench.precision), seed))
        eager.restore()

    def _exact(self) -> tuple[Results | None, Calls | None, Directions | None]:
        """fp64's results of the first call, and of all calls."""
        bench, results = self.bench, None
        numbers = sorted({FIRST, *self._eager.results})
        try:
            variant = bench.variant(exact=True)
            results = bench.run(variant)
            results.pop(TOKENS, None)  # eager's tokens are the truth: fp64 may choose others at a near tie
            if bench.generates:
                return results, None, None
            calls = Calls(results={1: results})
            for number in [number for number in numbers if 1 < number < OTHER]:
                calls.step(number, bench, variant)
            calls.after[FIRST] = row.State.of(variant)
            later = [number for number in numbers if number >= OTHER]
            row.continue_on_other_data(bench, variant, calls, self.data, numbers=later)
        except Exception as error:  # an operation may not support fp64; eager is then the truth
            print(f"no fp64 reference{' of other data' if results else ''}: {line_of(error)}", flush=True)
            if results is not None:
                row.check_device(bench, error)
            if not of(bench.device).healthy():
                raise  # nothing else can run in this process, either
            return results, None, None
        reduced = self.rule.reduced and self.rule.name == "noise" and calls.changed
        return results, calls, self._directions(variant) if reduced else None

    def _directions(self, exact: Variant) -> Directions | None:
        """The directions of the parts of the fp64 run on other data; None if they cannot be made."""
        bench, data = self.bench, self.data

        def run(context: Callable[[], Any] = nullcontext, *, inputs: bool = True) -> Tensors:
            exact.restore()
            with placed(exact, replace(data, inputs=inputs)), context():
                return dict(named_tensors(bench.output(exact), "output"))

        try:
            return Directions.measure(run, lambda: run(inputs=False))
        except Exception as error:  # the rest of the check does not need them
            print(f"no slopes of parts: {line_of(error)}", flush=True)
            return None
        finally:
            exact.restore()

    def _expect(
        self, eager: Calls, exact: Calls | None, directions: Directions | None, data: Data, why_not: str
    ) -> Expected:
        truths = {1: self.truth}
        usable = exact if self.truth.exact is not None else None
        for number, results in eager.results.items():
            if number == 1 or (number >= OTHER and not eager.changed):
                continue
            meant = usable.results.get(number) if usable is not None else None
            base = truths.get(BASE[number])
            truth = Truth.of(self.rule, meant, results, eager.noisy if base is None else (), base)
            truths[number] = truth.with_slopes(directions, eager.noisy) if number == OTHER else truth
        return Expected(
            truths=truths,
            eager=eager,
            exact=usable,
            data=data,
            directions=directions,
            why_not=why_not,
        )

    @property
    def can_judge(self) -> bool:
        """Whether the two eager runs are as close as their roundings allow, and close enough to judge by."""
        if self.rule.name == "field":
            return not any(self.spread.values())
        return all(spread <= self._allowed_spread(name) for name, spread in self.spread.items())

    def _allowed_spread(self, name: str) -> float:
        """Other noise than that of roundings widens the limit, too: it may be fine at most.

        A gradient that cancels to roundings may differ as noise does.
        """
        if name not in self.truth.eager:
            return -math.inf
        limit = self.truth.limit(name, "size")
        if self.truth.is_noise(name) and family_of(name) != "value":
            return limit
        return max(self.rule.delta, min(limit, FINE))

    # -- a candidate ----------------------------------------------------------------

    def first_calls(self, variant: Variant, seconds: list[float]) -> Calls:
        """The candidate's first calls; appends the seconds of each."""
        return row.first_calls(self.bench, variant, seconds)

    def judge(
        self, variant: Variant, compiled: Compiled, calls: Calls, figures: Path | None = None
    ) -> Verdict:
        """Parity of the first calls, and of three more on other data. ``figures``: a file for the table."""
        if self.rule.name == "field":
            return judge_field(self.truth, calls, can_judge=self.can_judge)
        check = Check(self, variant, compiled)
        if self.can_judge:
            check.run(calls)
            if figures is not None:
                write(figures, check)
        return check.verdict()

    def with_other_inputs(self) -> Expected:
        """The calls with other inputs and the first weights. Made for the first who needs them."""
        if self._of_inputs is None:
            bench, first = self.bench, self.expected
            assert first is not None
            if self._first_data_only:
                return first
            data, numbers = Data(inputs=True), sorted(first.eager.results)
            eager, why_not = row.in_a_row(bench, bench.variant(), data, numbers, noisy=True)
            exact = None
            if first.exact is not None and not why_not:
                exact, _ = row.in_a_row(bench, bench.variant(exact=True), data, numbers)
            self._of_inputs = self._expect(eager, exact, None, data, why_not)
        return self._of_inputs

    def neighbors(
        self, data: Data, digits: str, directions: Directions | None, coarseness: float
    ) -> Neighbors:
        key = data.weights, data.inputs, digits, coarseness
        if key not in self._neighbors:
            near = [replace(data, neighbor=n + 1, digits=digits) for n in range(NEIGHBORS)]
            self._neighbors[key] = Neighbors(self.bench, self.rule, near, self._pair, directions, coarseness)
        return self._neighbors[key]

    def truth_with_more_noise(self) -> Truth:
        """The truth of the first call, with as many noisy runs as a candidate's rank has."""
        if self.rule.name == "field" or self.bench.generates:
            return self.truth
        seeds = range(RUNS, RUNS * (NEIGHBORS + 1))
        more = Truth.of(
            self.rule, self.truth.exact, self.truth.eager, self._noisy(self.bench.variant(), seeds)
        )
        noise = {name: [*draws, *more.noise[name]] for name, draws in self.truth.noise.items()}
        return replace(self.truth, noise=noise)

    def by_chance(self) -> Chance:
        """The results of eager that depend on random numbers. The first call runs eager a few times."""
        bench = self.bench
        if self._chance is None:
            self._chance = chance_of(
                self.truth.eager,
                self.spread,
                self._drawn,
                lambda number: bench.run(bench.variant(), other_seed=number + 1),
                lambda context: bench.run(bench.variant(), context),
            )
        return self._chance


def _distance(truth: Truth, name: str, second: Tensors) -> float:
    """Of a second run of eager from the first, relative to the tensor's size."""
    first, again = truth.eager.get(name), second.get(name)
    if first is None or again is None or first.shape != again.shape or first.dtype != again.dtype:
        return math.inf
    if same_bits(first, again):
        return 0.0
    error = replace(truth, exact=None).error(name, again)
    return math.inf if isinstance(error, str) else truth.relative(name, error).size
