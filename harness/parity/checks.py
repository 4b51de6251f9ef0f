"""The checks of one job: what eager, noisy eager and fp64 compute, made once for all candidates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from harness.devices import of
from harness.failures import is_out_of_memory, line_of
from harness.parity.calls import (
    Drawing,
    Expected,
    FirstCalls,
    Form,
    Row,
    State,
    check_device,
    on_data,
    repeats,
    row_on,
)
from harness.parity.check import FINE, Check, write
from harness.parity.data import FIRST_DATA, Data, Factors, balance_of, placed
from harness.parity.field import judge_field
from harness.parity.later import Handed
from harness.parity.measure import family_of, same_bits, sketch
from harness.parity.noise import Noise, loudness
from harness.parity.rule import NEIGHBORS, RUNS, Judgment, Rule, Truth, Verdict, wrong_form
from harness.program import Compiled
from harness.schema import Status
from harness.tensors import Tensors
from harness.timing.step import Take, Variant
from harness.timing.workbench import TOKENS, Results, Workbench, cloned

MOST_EXACT_STEPS = 20  # of fp64: on three kinds of data, and on neighbors
SHARE_OF_TIMEOUT = 0.25
SEEDS = 3  # other ones, with which eager runs if its random numbers may explain a failure
SHOWN = 4  # operations in a sentence
OF_ROUNDINGS = 1e-3  # share of eager's spread that fp64 may have, if it is of roundings
DETERMINISTIC = (
    "PyTorch's harness makes eager deterministic for this rule: set CUBLAS_WORKSPACE_CONFIG=:4096:8, and "
    "call torch.use_deterministic_algorithms(True) in the model's code"
)

Made = TypeVar("Made")


class Checks:
    """The checks of one job, made before eager's first step. First ``go_on``, then ``open`` are called.

    ``drawn``: the generators that eager's step uses. ``first_data_only``: why no other data is used ("": it
    is used). ``process``: the number of this process (``harness.parity.later``); None: the job has one alone.
    """

    truth: Truth  # of the first call; set by ``open``, as those below
    expected: Expected  # of the first data
    spread: Mapping[str, float]  # distance of two runs of eager, relative to each tensor's size
    _of_fp64: Mapping[str, float]  # the same of fp64

    def __init__(
        self,
        bench: Workbench,
        rule: Rule,
        eager: Variant,
        drawn: Sequence[str],
        first_data_only: str = "",
        process: int | None = None,
    ) -> None:
        self.bench = bench
        self.rule = rule
        self.take: Take = cloned if rule.name == "field" else sketch  # what is kept of a result
        self._first_data_only = first_data_only or (
            "a generating step is compared on its own data" if bench.generates else ""
        )
        self.form: Form | None = None
        self.drawn = drawn
        self.noisy: list[Tensors] = []  # noisy eager's first call on the first data, for who looks on
        self._row = Row(before=None if bench.generates else State.of(eager))  # eager's on the first data
        self._process = process if rule.name == "noise" else None
        self._second: Results | None = None  # in a later process, until the whole check is needed
        self._exact: Variant | None = None  # until ``open`` is done
        self._exact_is_slow = False
        self._saving: Callable[[], AbstractContextManager[Any]] = nullcontext  # around fp64 runs
        self._others: dict[bool, Expected | str] = {}  # with other weights or without; or why there is none
        self._pair: tuple[Variant, Variant | None] | None = None  # eager, fp64
        self._near: dict[tuple[int, bool, int], Truth | None] = {}  # None: eager fails there

    # -- eager and fp64 ------------------------------------------------------------

    def go_on(self, eager: Variant, first: Results, second: Results, form: Form) -> None:
        """After eager's first two steps in a row. ``second`` is ``first`` where it repeats it.

        Then further steps on the same data would repeat them, too, and are not run, unless weights or inputs
        change.
        """
        self.form = form
        self._row.results = [first]
        if (before := self._row.before) is None:  # of a generating step
            return
        self._row.after = State.of(eager)
        if second is not first or self._row.after.digests != before.digests:
            self._row.results += [second, self.bench.run(eager, restored=False)]
            self._row.after = State.of(eager)

    def open(self, eager: Variant, first: Results, second: Results) -> None:
        """Runs fp64 and noisy eager. ``first`` and ``second``: eager from the same state.

        In a later process they run for the first candidate that needs them, if eager repeats its bits.
        """
        if not any(family_of(name) == "value" for name in first):
            raise ValueError("there is no tensor in the output to compare")
        if self._process and repeats(first, second):
            self._second, self._of_fp64, self.spread = second, {}, dict.fromkeys(first, 0.0)
            self._expect_first(self._of_eager_alone())
        else:
            self._open(eager, first, second)

    def _of_eager_alone(self) -> list[Truth]:
        return [Truth.of(self.rule, None, results) for results in self._row.results]

    def _expect_first(self, truths: Sequence[Truth]) -> None:
        self.expected = Expected(data=FIRST_DATA, truths=truths, eager=self._row)
        self.truth = truths[0]

    def _open(self, eager: Variant, first: Tensors, second: Tensors) -> None:
        self._exact = self._in_fp64(FIRST_DATA, partial(self.bench.variant, exact=True))
        noisy = self.rule.name == "noise"
        self.expected = self._expect(FIRST_DATA, self._row, eager if noisy else None)
        self.truth = self.expected.truths[0]
        self.spread = {name: _distance(self.truth, name, second) for name in {*first, *second}}
        self._of_fp64 = self._spread_of_fp64() if any(self.spread.values()) else {}
        if self._exact_is_slow:
            self._exact = None
        if noisy:
            self._others[True] = self._expect_on(eager, weights=True)
        self._exact = None  # frees its memory

    def _spread_of_fp64(self) -> Mapping[str, float]:
        """Of two fp64 runs, which add in another order, too, where a card does; {} without fp64."""
        exact, row = self._exact, self.expected.exact
        again = self._in_fp64(FIRST_DATA, partial(self.bench.run, exact)) if exact and row else None
        if row is None or again is None:
            return {}
        truth = Truth.of(self.rule, None, row.results[0])
        return {name: _distance(truth, name, again) for name in row.results[0]}

    def other(self, *, weights: bool) -> Expected | str:
        """The calls on other data (without other ``weights``: made when asked), or why there are none."""
        if weights not in self._others:
            self._exact = self._exact_on(Data(weights=weights, inputs=True))
            self._others[weights] = self._expect_on(self.bench.variant(), weights=weights)
            self._exact = None
        return self._others[weights]

    def _exact_on(self, data: Data) -> Variant | None:
        """The model in fp64, for further data; None if the first data has no fp64 result, or it is slow."""
        if self.truth.exact is None or self._exact_is_slow:
            return None
        return self._in_fp64(data, partial(self.bench.variant, exact=True))

    def _expect_on(self, eager: Variant, *, weights: bool) -> Expected | str:
        if self._first_data_only:
            return self._first_data_only
        data = Data(weights=weights, inputs=True, factors=self._factors if weights else {})
        try:
            row = row_on(self.bench, eager, data, len(self._row.results))
        except Exception as error:  # the model's code may not take other values
            check_device(self.bench, error)
            return f"eager fails on other data ({type(error).__name__}: {line_of(error)})"
        return self._expect(data, row, eager) if row.changed else "no input can be changed"

    def _expect(self, data: Data, row: Row, eager: Variant | None) -> Expected:
        exact = self._exact_row(data, len(row.results))
        noisy = self._noisy(eager, data, range(RUNS)) if eager is not None else []
        if data == FIRST_DATA:
            self.noisy = noisy
        meant = exact.results[0] if exact is not None else None
        truths = [Truth.of(self.rule, meant, row.results[0], noisy)]
        if truths[0].exact is None:
            exact = None
        for place, results in enumerate(row.results[1:], 1):
            meant = exact.results[place] if exact is not None else None
            truths.append(replace(Truth.of(self.rule, meant, results), noise=truths[0].noise))
        return Expected(data=data, truths=truths, eager=row, exact=exact)

    def _exact_row(self, data: Data, steps: int) -> Row | None:
        exact = self._exact
        if exact is None:
            return None

        def run() -> Row:
            if self.bench.generates:
                results = self.bench.run(exact)
                results.pop(TOKENS, None)  # eager's are the truth: fp64 may choose others at a near tie
                return Row(results=[results])
            start = time.perf_counter()
            row = row_on(self.bench, exact, data, steps)
            self._note_time(time.perf_counter() - start, steps)
            return row

        row = self._in_fp64(data, run)
        if row is None:
            self._exact = None
        return row

    def _in_fp64(self, data: Data, run: Callable[[], Made]) -> Made | None:
        """What ``run`` returns; None if an operation does not support fp64: eager is then the truth.

        After the first lack of memory, the host keeps the activations of fp64 runs.
        """
        device = of(self.bench.device)
        try:
            with self._saving():
                return run()
        except Exception as error:
            saved = self._saving is not nullcontext or not device.accelerated
            if saved or not is_out_of_memory(error):
                other = "" if data == FIRST_DATA else " of other data"
                print(f"no fp64 reference{other}: {line_of(error)}", flush=True)
                if other:
                    check_device(self.bench, error)
                if not device.healthy():
                    raise  # nothing else can run in this process, either
                return None
        self._saving = torch.autograd.graph.save_on_cpu
        self.bench.tidy()  # here the error and its frames, which hold memory, are gone
        return self._in_fp64(data, run)

    def _note_time(self, seconds: float, steps: int) -> None:
        """If all fp64 runs would take too much of the time limit, only those on the first data are made.

        Many GPUs have a 32nd or 64th of float32's rate in fp64.
        """
        estimate_s = seconds / steps * MOST_EXACT_STEPS
        device = of(self.bench.device)
        most_s = min(SHARE_OF_TIMEOUT * self.bench.timeout_s, device.pace.exact_s)
        slow = device.accelerated and estimate_s > most_s
        if slow and not self._exact_is_slow:
            self._exact_is_slow = True
            print(f"no fp64 reference of other data: it would take about {estimate_s:.0f} s", flush=True)

    def _noisy(self, eager: Variant, data: Data, seeds: Iterable[int]) -> list[Tensors]:
        """Noisy runs of the first call on this data; {} for one that the model's code refuses."""
        loud = loudness(self.bench.precision)
        return [self._run_on(eager, data, Noise(loud, seed)) for seed in seeds]

    def _run_on(self, eager: Variant, data: Data, noise: Noise | None = None) -> Tensors:
        """One step on this data; {} if the model's code refuses it."""
        try:
            return on_data(self.bench, eager, data, noise)
        except Exception as error:  # it may ask for exact sums, say, or for a symmetric matrix
            if is_out_of_memory(error):
                raise
            check_device(self.bench, error)
            run = "eager on a neighbor of the data" if noise is None else "noisy eager"
            print(f"a run of {run} fails: {line_of(error)}", flush=True)
            return {}

    @cached_property
    def _factors(self) -> Factors:
        """The factors of the weights on other data; none if eager fails there, which is found later."""
        copy = self.bench.variant()
        try:
            with placed(copy, Data(weights=True, inputs=True)):
                return balance_of(copy.program.module, lambda: self.bench.output(copy))
        except Exception as error:
            check_device(self.bench, error)
            print(f"the weights are not balanced: {line_of(error)}", flush=True)
            return {}

    @property
    def can_judge(self) -> bool:
        """Whether the two eager runs are as close as their roundings allow, and close enough to judge by."""
        if self.rule.name == "field":
            return not any(self.spread.values())
        return all(spread <= self._allowed_spread(name) for name, spread in self.spread.items())

    def is_unsteady(self, name: str) -> bool:
        """Whether eager's two runs differ in this tensor, or in another of its family."""
        family = family_of(name)
        return any(spread for other, spread in self.spread.items() if family_of(other) == family)

    def _allowed_spread(self, name: str) -> float:
        """Other noise than that of roundings widens the limit, too: it may be fine at most.

        Roundings, and a gradient that cancels to them, may differ as noise does. Two results may have errors
        of opposite signs.
        """
        if name not in self.truth.eager:
            return -math.inf
        limit = self.truth.limit(name, "size")
        if self._of_fp64.get(name, math.inf) <= OF_ROUNDINGS * self.spread[name]:
            return 2 * limit
        if self.truth.is_noise(name) and family_of(name) != "value":
            return limit
        return max(self.rule.delta, min(limit, FINE))

    # -- a candidate ----------------------------------------------------------------

    def judge(
        self, variant: Variant, compiled: Compiled, calls: FirstCalls, figures: Path | None = None
    ) -> Verdict:
        """Parity of the first calls, and of three more on other data. ``figures``: a file for the table."""
        if self.rule.name == "field":
            status, parity, notes = judge_field(self.truth, calls.results, self.spread)
            differ = status is Status.EAGER_TWO_RUNS_DIFFER and of(self.bench.device).accelerated
            if self.form is not None:
                parity = replace(parity, not_checked=self.form.not_compared())
            return status, parity, (*notes, *([DETERMINISTIC] if differ else ()))
        kept = figures.with_suffix(".json") if figures is not None and self._process is not None else None
        if self._second is not None:
            check = Check(self, variant, compiled)
            if self._repeats(check, calls, Handed.read(kept)):
                return check.verdict()
            second, self._second = self._second, None
            self._open(self.bench.variant(), self._row.results[0], second)
        check = Check(self, variant, compiled)
        if self.can_judge:
            check.run(calls)
            if figures is not None:
                write(figures, check)
        verdict = check.verdict()
        if kept is not None:
            kept.unlink(missing_ok=True)
            if verdict[0] is Status.PASS:
                Handed.of(self.truth, calls.results).write(kept)
        return verdict

    def _repeats(self, check: Check, calls: FirstCalls, handed: Handed | None) -> bool:
        """Whether the candidate clearly computes what passed in an earlier process."""
        truths = handed.limits(self._of_eager_alone()) if handed is not None else []
        if handed is None or not truths:
            return False
        self._expect_first(truths)
        return check.repeats(calls, handed)

    def neighbors(self, expected: Expected, *, constant: bool) -> Iterator[tuple[Data, Truth]]:
        """The neighbors of some data, but for those on which eager fails.

        Each truth is made for the first candidate that asks for it.
        ``constant``: the candidate's weights are constants.
        """
        if self._pair is None:
            self._pair = self.bench.variant(), self._exact_on(expected.data)
        eager, exact = self._pair
        for number in range(1, NEIGHBORS + 1):
            data = replace(expected.data, neighbor=number, constant=constant)
            key = expected.first, constant, number
            if key not in self._near:
                run = None if exact is None else partial(on_data, self.bench, exact, data)
                meant = None if run is None else self._in_fp64(data, run)
                meant = meant and {name: tensor for name, tensor in meant.items() if name != TOKENS}
                noisy = self._noisy(eager, data, range(RUNS * number, RUNS * (number + 1)))
                own = self._run_on(eager, data)
                self._near[key] = Truth.of(self.rule, meant, own, noisy) if own else None
            if (truth := self._near[key]) is not None:
                yield data, truth

    def truth_with_more_noise(self) -> Truth:
        """The truth of the first call, with as many noisy runs as a candidate's rank has."""
        if self.rule.name == "field" or self.bench.generates:
            return self.truth
        seeds = range(RUNS, RUNS * (NEIGHBORS + 1))
        more = self._noisy(self.bench.variant(), FIRST_DATA, seeds)
        noise = Truth.of(self.rule, self.truth.exact, self.truth.eager, more).noise
        return replace(self.truth, noise={n: [*draws, *noise[n]] for n, draws in self.truth.noise.items()})

    def chance(self, suspects: Iterable[Judgment]) -> str:
        """The operations of eager that draw random numbers, if they explain all suspects; else "".

        A compiler may draw other random numbers than eager from the same seed, and both are right. They
        explain a tensor that another seed changes in eager, too, and a wrong form if it changes the form.
        """
        draws, runs = self._other_seeds
        explained = runs and all(any(self._is_alike(each, run) for run in runs) for each in suspects)
        return draws if explained else ""

    @cached_property
    def _other_seeds(self) -> tuple[str, Sequence[Tensors]]:
        """The operations that draw, as words, and eager's results with a few other seeds."""
        if not self.drawn:
            return "", ()
        operations, bench = Drawing(), self.bench
        seeds = range(1, SEEDS + 1)
        runs = [bench.run(bench.variant(), operations if n == 1 else None, other_seed=n) for n in seeds]
        return ", ".join([*operations.names][:SHOWN] or self.drawn), runs

    def _is_alike(self, suspect: Judgment, run: Tensors) -> bool:
        """Whether this run of another seed differs from eager as the suspect does."""
        name, eager, other = suspect.name, self.truth.eager.get(suspect.name), run.get(suspect.name)
        finite = all(bool(torch.isfinite(each).all()) for each in (eager, other) if each is not None)
        if eager is None or other is None or wrong_form(name, eager, other):
            return eager is not other
        changed = not self.spread.get(name) and not same_bits(eager, other)
        return changed and not (suspect.form and finite)


def _distance(truth: Truth, name: str, second: Tensors) -> float:
    """Of a second run of eager from the first, relative to the tensor's size."""
    first, again = truth.eager.get(name), second.get(name)
    if first is None or again is None or first.shape != again.shape or first.dtype != again.dtype:
        return math.inf
    if same_bits(first, again):
        return 0.0
    error = replace(truth, exact=None).error(name, again)
    return math.inf if isinstance(error, str) else error.size
