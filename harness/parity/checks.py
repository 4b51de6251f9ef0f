"""All checks of one job's candidates, and what eager and fp64 compute for them, once for all candidates.

A candidate is checked on its first and third call (in full), on six steps in a row, of which the last three
have other weights and inputs (``harness.parity.steps``), and once more after the timed rounds
(``harness.parity.drift``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from harness.devices import of
from harness.failures import line_of
from harness.parity import rule as parity
from harness.parity import steps
from harness.parity.chance import Chance, chance_of
from harness.parity.drift import DriftCheck
from harness.parity.other_data import WEIGHTS, has_plain_weights
from harness.parity.parts.balance import NONE
from harness.parity.parts.slopes import PartSlopes
from harness.parity.reference import Reference, Rule, Tensors, make_reference
from harness.parity.sensitivity import Kinks, worst_blocks
from harness.program import Compiled
from harness.schema import Parity, Status, TensorError
from harness.timing.step import Variant
from harness.timing.workbench import TOKENS, Results, Workbench

Verdict = tuple[Status, Parity, tuple[str, ...]]
"""Status, parity and notes."""


class Checks:
    """The checks of one job. ``open`` comes first; ``drawn``: the generators that eager's step uses."""

    reference: Reference  # set by ``open``

    def __init__(self, bench: Workbench, rule: Rule, drawn: Sequence[str], drift: DriftCheck) -> None:
        self._bench = bench
        self._rule = rule
        self._drawn = drawn
        self._row = steps.Row()
        self._expected: steps.Expected | None = None
        self._of_inputs: steps.Expected | None = None  # other inputs, but the first weights
        self._chance: Chance | None = None
        self._kinks: dict[tuple[str, ...], Kinks] = {}
        self._perturbed: list[Variant] = []  # eager and fp64, if a kink was looked for
        self._drift = drift
        self._slopes: PartSlopes | None = None  # in reduced precision
        self._why_not = ""

    # -- eager and fp64 ------------------------------------------------------------

    def begin(self, eager: Variant) -> None:
        """Before eager's first step."""
        if not self._bench.generates:
            self._row.factors = steps.balance(self._bench)
        self._row.begin(steps.FIRST, eager)

    def go_on(self, eager: Variant, first: Results, second: Results) -> None:
        """After eager's first two steps in a row. ``second`` is ``first`` where it repeats it."""
        self._why_not = "a generating step is compared on its own data, and restored before each comparison"
        if not self._bench.generates:
            self._why_not = steps.eager_row(self._bench, eager, self._row, first, second)

    def open(self, first: Results, second: Results) -> Reference:
        """Runs fp64 and makes the references. ``first`` and ``second``: eager twice, from the same state."""
        bench = self._bench
        exact, row = self._exact()
        self.reference = make_reference(exact, first, second, self._rule)
        if not bench.generates:
            self._expected = steps.expect(self._rule, self._row, row, self.reference, self._why_not)
        return self.reference

    def _exact(self) -> tuple[Results | None, steps.Row | None]:
        """fp64's results of the first step, and of the row."""
        bench, found = self._bench, None
        try:
            variant = bench.variant(exact=True)
            found = bench.run(variant)
            found.pop(TOKENS, None)  # eager's tokens are the reference: fp64 may choose others at a near tie
            if bench.generates:
                return found, None
            row = steps.exact_row(bench, variant, found, self._row)
        except Exception as error:  # an operation may not support fp64; eager is then the reference
            print(f"no fp64 reference{' of other data' if found else ''}: {line_of(error)}", flush=True)
            if not of(bench.device).healthy():
                raise  # nothing else can run in this process, either
            return found, None
        if self._rule.reduced and self._rule.name == "scaled" and row.changed:
            self._slopes = steps.part_slopes(bench, variant, row)
        return found, row

    # -- a candidate ----------------------------------------------------------------

    def first_calls(self, variant: Variant, seconds: list[float]) -> steps.FirstCalls:
        """The candidate's first calls; appends the seconds of each."""
        return steps.first_calls(self._bench, variant, seconds)

    def judge(self, variant: Variant, compiled: Compiled, calls: steps.FirstCalls) -> Verdict:
        """Parity of the first calls, and of three more steps on other data."""
        expected = self._expected
        if expected is not None:  # what a step changes is judged with the other steps
            calls.settled = {n: t for n, t in calls.settled.items() if expected.steady(n, 3)}
        found, by_chance = self._on_first_data(variant, calls)
        self._drift.remember(variant, calls.first, calls.settled, self.reference)
        calls.first, calls.settled = {}, {}  # frees their memory before the next steps
        notes: tuple[str, ...] = ()
        if self._expected is None:
            found = replace(found, not_checked=(f"steps in a row: {self._why_not}",))
        elif self.reference.can_judge:
            found, by_chance, notes = self._in_a_row(variant, compiled, calls.row, found, by_chance)
        if found.failed and by_chance:
            found = replace(found, random=self.by_chance().draws)
        found = replace(found, unjudged=why_not_judged(self.reference, found))
        return self._status(found, compiled), found, notes

    def _status(self, found: Parity, compiled: Compiled) -> Status:
        if not self.reference.can_judge:
            return Status.EAGER_TWO_RUNS_DIFFER
        if found.random or (found.unjudged and (not found.failed or parity.is_doubtful(found))):
            return Status.CANNOT_JUDGE
        if compiled.approximate and parity.resembles(found):
            return Status.APPROXIMATE
        return Status.FAIL_ACCURACY if found.failed else Status.PASS

    def _on_first_data(self, variant: Variant, calls: steps.FirstCalls) -> tuple[Parity, bool]:
        """Parity of the first and third call, and whether chance explains a failure."""
        reference, settled = self.reference, calls.settled
        found = parity.compare_both(reference, calls.first, settled)
        if not found.failed:
            return found, False
        names = [parity.failing(reference, calls.first)] * 2
        if not parity.equal(calls.first, settled):
            names[1] = parity.failing(reference.of(settled), settled)
        chance = self.by_chance()
        if chance.changed:
            each = zip(names, (calls.first, settled), strict=True)
            return found, all(chance.explains(failing, made, reference.eager) for failing, made in each)
        runs = ((reference, calls.first), (reference.of(settled), settled))
        excused = self._excused(variant, (), names, runs)
        return parity.compare_both(reference, calls.first, settled, excused=excused), False

    def _in_a_row(
        self, variant: Variant, compiled: Compiled, row: steps.Row, found: Parity, by_chance: bool
    ) -> tuple[Parity, bool, tuple[str, ...]]:
        """Adds the row's checks. The first check that fails is reported; ``by_chance``: of all of them."""
        first = self._expected
        assert first is not None
        expected = first
        if found.failed == 0:
            found, by_chance = self._earlier_or(first, row, 2, found)
        if found.failed == 0:
            found, by_chance = self._earlier_or(first, row, 3, found)
        found = self._left_alone(first, row, steps.FIRST, found)
        if compiled.constant_weights or not has_plain_weights(variant.program.module):
            expected = self._with_other_inputs()
        if expected.why_not:
            why = (f"other data: {expected.why_not}",)
            return replace(found, steps=3, not_checked=why), by_chance, ()
        weights = WEIGHTS in expected.changed
        row.factors = expected.eager.factors
        steps.continue_on_other_data(self._bench, variant, row, weights=weights)
        excused: Mapping[str, TensorError] = {}
        if found.failed == 0 and steps.any_fails(expected, row, steps.ON_OTHER):
            if not self.by_chance().changed:
                names = [steps.failing_step(expected, row, number) for number in steps.ON_OTHER]
                excused = self._excused(variant, expected.changed, names)
            for number in steps.ON_OTHER:
                if found.failed == 0:
                    found, by_chance = self._earlier_or(expected, row, number, found, excused)
        if found.failed == 0 and expected is first:
            found = self._part_or(first, row, found)
        found = self._left_alone(expected, row, steps.OTHER, found)
        notes = (f"compiled again for other data of the same shapes: {row.compiled}",) if row.compiled else ()
        not_checked = () if weights else ("other weights: this compiler makes the weights constants",)
        more = tuple(name for name in excused if name not in found.sensitive_tensors)
        found = replace(
            found,
            steps=steps.STEPS,
            other_data=expected.changed,
            not_checked=not_checked,
            sensitive_tensors=(*found.sensitive_tensors, *more),
        )
        return found, by_chance, notes

    def _earlier_or(
        self,
        expected: steps.Expected,
        row: steps.Row,
        number: int,
        found: Parity,
        excused: Mapping[str, TensorError] = parity.NONE,
    ) -> tuple[Parity, bool]:
        """``found``, or the failure of this step, and whether chance explains it."""
        made = steps.judge_step(expected, row, number, excused)
        if made is None or not made.failed:
            return found, False
        where = f"step {number} in a row"
        where += f", on other {' and '.join(expected.changed)}" if number >= steps.OTHER else ""
        if steps.is_stale(expected, row, number):
            where += ": an output is still that of the first data"
        failing = steps.failing_step(expected, row, number)
        eager = expected.at(number).eager
        by_chance = self.by_chance().changed and self.by_chance().explains(
            failing, row.results[number], eager
        )
        return replace(found, failed=made.failed, worst=made.worst, found_by=where), bool(by_chance)

    def _part_or(self, expected: steps.Expected, row: steps.Row, found: Parity) -> Parity:
        """``found``, or the part of the model whose result is on the whole wrong."""
        if self._slopes is None or expected.exact is None:
            return found
        exact, made = expected.exact.results, row.results
        for number in steps.ON_OTHER:
            if number > steps.OTHER and parity.equal(made[number], made[steps.OTHER]):
                continue
            truth = exact.get(number, exact[steps.OTHER])  # fp64 runs the steps that eager does not repeat
            wrong = self._slopes.judge(expected.at(number), truth, made[number])
            if wrong is not None:
                break
        else:
            return found
        return replace(found, failed=1, worst=wrong, found_by="the slope of each part, on other data")

    def _left_alone(self, expected: steps.Expected, row: steps.Row, number: int, found: Parity) -> Parity:
        """``found``, or the weights and inputs that the steps should have left as they are."""
        wrong = [] if found.failed else steps.judge_state(expected, row, number, self._rule)
        if not wrong:
            return found
        return replace(
            found, failed=len(wrong), worst=wrong[0], found_by="weights and inputs after the steps"
        )

    def _with_other_inputs(self) -> steps.Expected:
        """The expected row with other inputs and the first weights. Made for the first who needs it."""
        if self._of_inputs is None:
            bench = self._bench
            first = self._expected
            assert first is not None
            repeats = 2 not in first.eager.results
            row, why_not = steps.new_row(bench, bench.variant(), weights=False, repeats=repeats)
            exact = None
            if first.exact is not None and not why_not:
                exact, _ = steps.new_row(bench, bench.variant(exact=True), weights=False, repeats=repeats)
            self._of_inputs = steps.expect(self._rule, row, exact, self.reference, why_not)
        return self._of_inputs

    def _excused(
        self,
        variant: Variant,
        changed: tuple[str, ...],
        names: Sequence[Iterable[str]],
        runs: Sequence[tuple[Reference, Tensors]] = (),
    ) -> Mapping[str, TensorError]:
        """The tensors that fail at these weights only. On the same data, they fail every time.

        ``runs``: whole results. Their worst parts are in the samples that the perturbed runs keep.
        """
        bench, reference = self._bench, self.reference
        if reference.exact is None or reference.rule.reduced or self._rule.name == "field":
            return {}
        each = [set(found) for found in names]
        failing = set.intersection(*each) if reference.bit_equal else set.union(*each)
        if not failing:
            return {}
        worst = {name: blocks for name in failing for blocks in (worst_blocks(name, runs),) if blocks}
        kinks = None if worst else self._kinks.get(changed)  # with ``worst``, of this candidate alone
        if kinks is None:
            factors = self._expected.eager.factors if self._expected is not None and changed else NONE
            kinks = Kinks(bench, self._rule, self._perturbed, changed, factors, worst)
            if not worst:
                self._kinks[changed] = kinks
        with variant.kept():  # steps in a row continue from the buffers of the step before
            return kinks.excused(variant, sorted(failing))

    def by_chance(self) -> Chance:
        """The results of eager that depend on random numbers. The first call runs eager a few times."""
        bench = self._bench
        if self._chance is None:
            self._chance = chance_of(
                self.reference,
                self._drawn,
                lambda number: bench.run(bench.variant(), other_seed=number + 1),
                lambda context: bench.run(bench.variant(), context),
            )
        return self._chance


MOST_NOISE = 0.2  # share of the values: a model has many small tensors, such as a normalization's


def why_not_judged(reference: Reference, found: Parity) -> str:
    """A sentence if eager's results do not allow a judgment; "" if they do."""
    if found.rule == "field":
        return ""
    if reference.lost:
        return f"eager's {_some(reference.lost)} overflowed, or held NaN or infinities only"
    noise = set(found.noise_tensors)
    if "loss" in noise:
        return "eager's loss is rounding noise: zero would pass"
    for kind in ("output", ""):
        sizes = {name: tensor.numel() for name, tensor in reference.eager.items() if name.startswith(kind)}
        lost = [size for name, size in sizes.items() if name in noise]
        if sum(lost) > MOST_NOISE * sum(sizes.values()):
            what = "outputs" if kind else "tensors"
            return f"{len(lost)} of {len(sizes)} {what} are rounding noise: zeros would pass"
    return ""


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
