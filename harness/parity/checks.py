"""The checks of one job: what eager, noisy eager and fp64 compute, made once for all candidates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness.devices import of
from harness.failures import is_out_of_memory, line_of
from harness.parity.calls import (
    FIRST,
    IN_A_ROW,
    OTHER,
    FirstCalls,
    Row,
    State,
    check_device,
    first_calls,
    on_data,
    row_on,
)
from harness.parity.chance import Chance, chance_of
from harness.parity.check import FINE, Check
from harness.parity.data.balance import NONE, Factors, balance_of
from harness.parity.data.other_data import FIRST_DATA, Data, placed
from harness.parity.directions import Directions
from harness.parity.field import judge_field
from harness.parity.form import Form
from harness.parity.measure import family_of, same_bits, sketch
from harness.parity.noise import Noise, loudness
from harness.parity.rule import NEIGHBORS, RUNS, Rule, Truth
from harness.parity.told.figures import write
from harness.program import Compiled
from harness.schema import Parity, Status
from harness.tensors import Tensors, named_tensors
from harness.timing.step import Take, Variant
from harness.timing.workbench import TOKENS, Results, Workbench, cloned

MOST_EXACT_STEPS = 20  # of fp64: on three kinds of data, on neighbors, and the directions' forwards
SHARE_OF_TIMEOUT = 0.25
DETERMINISTIC = (
    "PyTorch's harness makes eager deterministic for this rule: set CUBLAS_WORKSPACE_CONFIG=:4096:8, and "
    "call torch.use_deterministic_algorithms(True) in the model's code"
)

Verdict = tuple[Status, Parity, tuple[str, ...]]
"""Status, parity and notes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What eager says about steps in a row on one data. ``first``: the number of the first of these calls.

    ``truths``: of each step; one, if each step of eager repeats the first.
    """

    first: int
    data: Data
    truths: Sequence[Truth]
    eager: Row
    exact: Row | None = None
    directions: Directions | None = None

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


class Checks:
    """The checks of one job. ``begin``, ``go_on`` and ``open`` come first, in this order.

    ``drawn``: the generators that eager's step uses. ``first_data_only``: why no other data is used ("": it
    is used).
    """

    truth: Truth  # of the first call; set by ``open``, as the two below
    expected: Expected  # of the first data
    spread: Mapping[str, float]  # distance of two runs of eager, relative to each tensor's size

    def __init__(self, bench: Workbench, rule: Rule, drawn: Sequence[str], first_data_only: str = "") -> None:
        self.bench = bench
        self.rule = rule
        self._first_data_only = first_data_only or (
            "a generating step is compared on its own data" if bench.generates else ""
        )
        self.form: Form | None = None
        self.drawn = drawn
        self._row = Row()  # eager's on the first data
        self._factors = NONE
        self._exact: Variant | None = None  # until ``open`` is done
        self._exact_is_slow = False
        self._saving: Callable[[], AbstractContextManager[Any]] = nullcontext  # around fp64 runs
        self._others: dict[bool, Expected | str] = {}  # with other weights or without; or why there is none
        self._pair: tuple[Variant, Variant] | None = None  # eager and fp64, if neighbors were looked at
        self._near: dict[tuple[int, bool, int], Truth] = {}
        self._chance: Chance | None = None

    @property
    def take(self) -> Take:
        """What is kept of a result."""
        return cloned if self.rule.name == "field" else sketch

    # -- eager and fp64 ------------------------------------------------------------

    def begin(self, eager: Variant) -> None:
        """Before eager's first step."""
        if not self._first_data_only:
            self._factors = self._balance()
        if not self.bench.generates:
            self._row.before = State.of(eager)

    def go_on(self, eager: Variant, first: Results, second: Results, form: Form) -> None:
        """After eager's first two steps in a row. ``second`` is ``first`` where it repeats it.

        Then further steps on the same data would repeat them, too, and are not run.
        """
        self.form = form
        self._row.results = [first]
        if not self.bench.generates:
            if second is not first:
                self._row.results += [second, self.bench.run(eager, restored=False)]
            self._row.after = State.of(eager)

    def open(self, eager: Variant, first: Results, second: Results) -> None:
        """Runs fp64 and noisy eager. ``first`` and ``second``: eager from the same state."""
        try:
            self._exact = self.bench.variant(exact=True)
        except Exception as error:
            self._no_exact(error, FIRST_DATA)
        noisy = self.rule.name == "noise"
        self.expected = self._expect(FIRST, FIRST_DATA, self._row, eager if noisy else None)
        self.truth = self.expected.truths[0]
        if self._exact_is_slow:
            self._exact = None
        self.spread = {name: _distance(self.truth, name, second) for name in {*first, *second}}
        if noisy:
            self._others[True] = self._expect_on(self.other_data(weights=True), eager)
        self._exact = None  # frees its memory

    def other_data(self, *, weights: bool) -> Data:
        return Data(weights=weights, inputs=True, factors=self._factors if weights else NONE)

    def other(self, *, weights: bool) -> Expected | str:
        """The calls on other data (without other ``weights``: made when asked), or why there are none."""
        if weights not in self._others:
            exact = self.truth.exact is not None and not self._exact_is_slow
            self._exact = self.bench.variant(exact=True) if exact else None
            self._others[weights] = self._expect_on(self.other_data(weights=weights), self.bench.variant())
            self._exact = None
        return self._others[weights]

    def _expect_on(self, data: Data, eager: Variant) -> Expected | str:
        if self._first_data_only:
            return self._first_data_only
        try:
            row = row_on(self.bench, eager, data, len(self._row.results))
        except Exception as error:  # the model's code may not take other values
            check_device(self.bench, error)
            return f"eager fails on other data ({type(error).__name__}: {line_of(error)})"
        return self._expect(OTHER, data, row, eager) if row.changed else "no input can be changed"

    def _expect(self, first: int, data: Data, row: Row, eager: Variant | None) -> Expected:
        exact = self._exact_row(data, len(row.results))
        noisy = self._noisy(eager, data, range(RUNS)) if eager is not None else []
        truth = Truth.of(self.rule, exact.results[0] if exact is not None else None, row.results[0], noisy)
        if truth.exact is None:
            exact = None
        directions = self._directions(data) if exact is not None and data.weights else None
        truth = truth.with_slopes(directions, noisy)
        later = [
            replace(
                Truth.of(self.rule, exact.results[place] if exact is not None else None, results, ()),
                noise=truth.noise,
            )
            for place, results in enumerate(row.results[1:], 1)
        ]
        return Expected(
            first=first, data=data, truths=[truth, *later], eager=row, exact=exact, directions=directions
        )

    def _exact_row(self, data: Data, steps: int) -> Row | None:
        if self._exact is None:
            return None
        start = time.perf_counter()
        try:
            if self.bench.generates:
                results = self.bench.run(self._exact)
                results.pop(
                    TOKENS, None
                )  # eager's tokens are the truth: fp64 may choose others at a near tie
                return Row(results=[results])
            with self._saving():
                row = row_on(self.bench, self._exact, data, steps)
        except Exception as error:
            if not self._saves_memory(error):
                self._no_exact(error, data)
                return None
        else:
            self._note_time(time.perf_counter() - start, steps)
            return row
        self.bench.tidy()  # here the error and its frames, which hold memory, are gone
        return self._exact_row(data, steps)

    def _saves_memory(self, error: Exception) -> bool:
        """After the first lack of memory: whether the host keeps activations of fp64 runs from now on."""
        if self._saving is not nullcontext or not (
            of(self.bench.device).accelerated and is_out_of_memory(error)
        ):
            return False
        self._saving = torch.autograd.graph.save_on_cpu
        return True

    def _note_time(self, seconds: float, steps: int) -> None:
        """If all fp64 runs would take too much of the time limit, only those on the first data are made.

        Many GPUs have a 32nd or 64th of float32's rate in fp64.
        """
        estimate_s = seconds / steps * MOST_EXACT_STEPS
        slow = of(self.bench.device).accelerated and estimate_s > SHARE_OF_TIMEOUT * self.bench.timeout_s
        if slow and not self._exact_is_slow:
            self._exact_is_slow = True
            print(f"no fp64 reference of other data: it would take about {estimate_s:.0f} s", flush=True)

    def _no_exact(self, error: Exception, data: Data) -> None:
        """An operation may not support fp64; eager is then the truth."""
        print(f"no fp64 reference{' of other data' if data.inputs else ''}: {line_of(error)}", flush=True)
        if data.inputs:
            check_device(self.bench, error)
        if not of(self.bench.device).healthy():
            raise error  # nothing else can run in this process, either
        self._exact = None

    def _noisy(self, eager: Variant, data: Data, seeds: Iterable[int]) -> list[Tensors]:
        """Noisy runs of the first call on this data."""
        loud = loudness(self.bench.precision)
        return [on_data(self.bench, eager, data, Noise(loud, seed)) for seed in seeds]

    def _balance(self) -> Factors:
        """The factors of the weights on other data; none if eager fails there, which is found later."""
        copy = self.bench.variant()
        try:
            with placed(copy, Data(weights=True, inputs=True)):
                return balance_of(copy.program.module, lambda: self.bench.output(copy))
        except Exception as error:
            check_device(self.bench, error)
            print(f"the weights are not balanced: {line_of(error)}", flush=True)
            return NONE

    def _directions(self, data: Data) -> Directions | None:
        """The directions of the parts of the fp64 run, in reduced precision; None if they cannot be made."""
        exact = self._exact
        if exact is None or not self.rule.reduced:
            return None

        def run(context: Callable[[], Any] = nullcontext, *, inputs: bool = True) -> Tensors:
            exact.restore()
            with placed(exact, replace(data, inputs=inputs)), context():
                return dict(named_tensors(self.bench.output(exact), "output"))

        try:
            return Directions.measure(run, lambda: run(inputs=False))
        except Exception as error:  # the rest of the check does not need them
            print(f"no slopes of parts: {line_of(error)}", flush=True)
            return None
        finally:
            exact.restore()

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

    def first_calls(self, variant: Variant, seconds: list[float]) -> FirstCalls:
        """The candidate's first calls; appends the seconds of each."""
        return first_calls(self.bench, variant, seconds)

    def judge(
        self, variant: Variant, compiled: Compiled, calls: FirstCalls, figures: Path | None = None
    ) -> Verdict:
        """Parity of the first calls, and of three more on other data. ``figures``: a file for the table."""
        if self.rule.name == "field":
            status, parity, notes = judge_field(self.truth, calls.results, can_judge=self.can_judge)
            differ = status is Status.EAGER_TWO_RUNS_DIFFER and of(self.bench.device).accelerated
            return status, parity, (*notes, *([DETERMINISTIC] if differ else ()))
        check = Check(self, variant, compiled)
        if self.can_judge:
            check.run(calls)
            if figures is not None:
                write(figures, check)
        return check.verdict()

    def neighbors(self, expected: Expected, *, constant: bool) -> Iterator[tuple[Data, Truth]]:
        """The neighbors of some data. Each truth is made for the first candidate that asks for it.

        ``constant``: the candidate's weights are constants.
        """
        for number in range(1, NEIGHBORS + 1):
            data = replace(expected.data, neighbor=number, constant=constant)
            key = expected.first, constant, number
            if key not in self._near:
                self._near[key] = self._truth_near(data, expected.directions)
            yield data, self._near[key]

    def _truth_near(self, data: Data, directions: Directions | None) -> Truth:
        self._pair = self._pair or (self.bench.variant(), self.bench.variant(exact=True))
        eager, exact = self._pair
        meant: Tensors | None = None
        try:
            with self._saving():
                meant = None if self._exact_is_slow else on_data(self.bench, exact, data)
            meant = meant and {name: tensor for name, tensor in meant.items() if name != TOKENS}
        except Exception as error:  # eager is then the truth
            check_device(self.bench, error)
            print(f"no fp64 run on a neighbor: {line_of(error)}", flush=True)
        seeds = range(RUNS * data.neighbor, RUNS * (data.neighbor + 1))
        noisy = self._noisy(eager, data, seeds)
        truth = Truth.of(self.rule, meant, on_data(self.bench, eager, data), noisy)
        return truth.with_slopes(directions, noisy)

    def truth_with_more_noise(self) -> Truth:
        """The truth of the first call, with as many noisy runs as a candidate's rank has."""
        if self.rule.name == "field" or self.bench.generates:
            return self.truth
        seeds = range(RUNS, RUNS * (NEIGHBORS + 1))
        more = self._noisy(self.bench.variant(), FIRST_DATA, seeds)
        noise = Truth.of(self.rule, self.truth.exact, self.truth.eager, more).noise
        return replace(self.truth, noise={n: [*draws, *noise[n]] for n, draws in self.truth.noise.items()})

    def by_chance(self) -> Chance:
        """The results of eager that depend on random numbers. The first call runs eager a few times."""
        bench = self.bench
        if self._chance is None:
            self._chance = chance_of(
                self.truth.eager,
                self.spread,
                self.drawn,
                lambda number, context: bench.run(bench.variant(), context, other_seed=number),
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
