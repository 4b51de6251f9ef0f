"""The check of one candidate: its calls are judged, and what is beyond a limit is looked at again."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from harness.parity import calls as row
from harness.parity.calls import BASE, FIRST, ON_OTHER, OTHER, Calls
from harness.parity.data.other_data import FIRST_DATA, INPUTS, WEIGHTS, Data, has_plain_weights
from harness.parity.directions import Directions
from harness.parity.form import other_strides, wrong_forms
from harness.parity.measure import Error, family_of, is_exact_kind, same_bits
from harness.parity.rule import GARBAGE, Judgment, Truth, as_error, judge
from harness.parity.told.words import of_rank
from harness.program import Compiled
from harness.schema import Parity, Status, TensorError
from harness.tensors import Tensors
from harness.timing.step import Variant

if TYPE_CHECKING:
    from harness.parity.checks import Checks

MOST_NOISE = 0.2  # share of the values of outputs, and of gradients, that need not be judged
FINE = 0.01  # a value is judged finely if its limit is at most this share of its tensor's size
COARSEST = 8.0  # multiple of the noise on neighbors, for a candidate whose outputs are so far off
REPEATED = 0.5  # share of an error that a repeated call shows at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What eager says about each call; a call that repeats an earlier one has its truth. ``why_not``: why
    there are none on other data.
    """

    truths: Mapping[int, Truth]
    eager: Calls
    exact: Calls | None
    data: Data
    directions: Directions | None = None
    why_not: str = ""

    def at(self, number: int) -> Truth:
        return self.truths.get(number) or self.truths[BASE[number]]

    def steady(self, name: str, number: int) -> bool:
        """Whether eager computes the same values of this tensor as at the first call on the same data."""
        here, there = self.at(number), self.at(BASE[number])
        return here is there or (name in there.eager and same_bits(here.eager[name], there.eager[name]))


@dataclass(slots=True)
class Check:
    """``run`` judges; ``verdict`` tells."""

    checks: Checks
    variant: Variant
    compiled: Compiled
    judgments: list[Judgment] = field(default_factory=list)
    failures: list[tuple[Judgment, str]] = field(default_factory=list)
    sensitive: dict[str, float] = field(default_factory=dict)  # tensor -> what noisy eager shows of its size
    notes: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    changed: tuple[str, ...] = ()
    steps: int = 0
    random: str = ""
    _other: Expected | None = None  # what the calls on other data are judged by

    def run(self, calls: Calls) -> None:
        checks, expected = self.checks, self.checks.expected
        self._judge_form(calls)
        for number in (1, 2, 3):
            if number in calls.results and (expected is not None or number != 2):
                self._judge_call(expected, calls, number)
        if expected is None:
            self.not_checked.append(f"steps in a row: {checks.why_not}")
        else:
            self._judge_state(expected, calls, FIRST)
            self._on_other_data(expected, calls)
        self._judge_memory(calls)
        self._settle()

    # -- judging --------------------------------------------------------------------

    def _judge_form(self, calls: Calls) -> None:
        eager, candidate = self.checks.form, calls.form
        if eager is not None and candidate is not None:
            for name, why in wrong_forms(eager, candidate):
                self._add(Judgment(name=name, call=1, form=why))
            self.notes += [note for note in (other_strides(eager, candidate),) if note]

    def _judge_call(self, expected: Expected | None, calls: Calls, number: int) -> None:
        """Judges the tensors that are not what they were at the first call on the same data.

        What eager changes from call to call, such as a running mean, adds up its errors, and noise is known
        of the first call only: of a later call it fails far beyond its limit.
        """
        results, base = calls.results[number], calls.results[BASE[number]]
        truth = self.checks.truth if expected is None else expected.at(number)
        for name in dict.fromkeys((*truth.eager, *results)):
            here, there = results.get(name), base.get(name)
            repeated = here is not None and there is not None and same_bits(here, there)
            steady = expected is None or name not in truth.eager or expected.steady(name, number)
            if number != BASE[number] and repeated and steady:
                continue
            judgment = judge(truth, name, here, number)
            if number == BASE[number] or steady or judgment.form:
                self._add(judgment)
            elif judgment.used > GARBAGE:
                self._add(replace(judgment, form=of_rank(truth, judgment, None)))
        if expected is not None and number >= OTHER:
            for judgment in truth.judge_slopes(expected.directions, results, number):
                self._add(judgment)

    def _add(self, judgment: Judgment) -> None:
        self.judgments.append(judgment)
        if judgment.form:
            self.failures.append((judgment, judgment.form))

    def _on_other_data(self, expected: Expected, calls: Calls) -> None:
        weights = not self.compiled.constant_weights and has_plain_weights(self.variant.program.module)
        if not weights:
            expected = self.checks.with_other_inputs()
            self.not_checked.append("other weights: this compiler makes the weights constants")
        self.steps = 3
        if expected.why_not:
            self.not_checked.append(f"other data: {expected.why_not}")
            return
        row.continue_on_other_data(self.checks.bench, self.variant, calls, expected.data)
        self.changed, self.steps, self._other = expected.eager.changed, len(BASE), expected
        if calls.compiled:
            self.notes.append(f"compiled again for other data of the same shapes: {calls.compiled}")
        for number in ON_OTHER:
            self._judge_call(expected, calls, number)
        self._judge_state(expected, calls, OTHER)

    def _judge_memory(self, calls: Calls) -> None:
        if not self.compiled.replays:  # torch says that a replay of CUDA graphs overwrites earlier outputs
            for name in calls.overwritten:
                self._add(
                    Judgment(name=name, call=2, form="a later call overwrites an earlier call's output")
                )

    def _judge_state(self, expected: Expected, calls: Calls, number: int) -> None:
        """What eager leaves as it is must keep its bits. What eager changes is judged like a result."""
        before, after = expected.eager.before[number], expected.eager.after[number]
        candidate = calls.after[number]
        for name, digest in after.digests.items():
            if name not in candidate.digests or before.digests.get(name) is None:
                continue
            if before.digests[name] == digest and candidate.digests[name] != digest:
                why = "a step changes it; eager's step leaves it as it is"
                self._add(Judgment(name=name, call=number, form=why))
        moved = {n: t for n, t in after.sketches.items() if before.digests.get(n) != after.digests.get(n)}
        if moved:
            exact = expected.exact.after[number].sketches if expected.exact is not None else None
            truth = Truth.of(self.checks.rule, exact, moved, ())
            for name in moved:
                judgment = judge(truth, name, candidate.sketches.get(name), number)
                if judgment.form or judgment.error.size > GARBAGE * max(
                    self.checks.rule.delta, truth.usual(name, "size")
                ):
                    self.failures.append(
                        (judgment, judgment.form or "a step changes it otherwise than eager's")
                    )

    # -- what is beyond a limit ----------------------------------------------------------

    def _settle(self) -> None:
        """Each tensor that is beyond a limit fails or is sensitive."""
        beyond = [judgment for judgment in self.judgments if judgment.beyond]
        if not (beyond or self.failures):
            return
        chance = self.checks.by_chance()
        of_wrong_form = {judgment.name for judgment, _ in self.failures}
        if chance.changed and chance.explains({judgment.name for judgment in beyond}, of_wrong_form):
            self.random = chance.draws
        for base in (FIRST, OTHER):
            here = [judgment for judgment in beyond if BASE[judgment.call] == base]
            other = self._other if base == OTHER else None
            truth = self.checks.truth if other is None else other.at(OTHER)
            gross = [judgment for judgment in here if self._is_gross(truth, judgment)]
            self.failures += [(judgment, of_rank(truth, judgment, None)) for judgment in gross]
            rest = [judgment for judgment in here if judgment not in gross]
            if rest and not self.random:
                self._look_again(other, truth, rest)

    def _is_gross(self, truth: Truth, judgment: Judgment) -> bool:
        """Whether it fails on any data: an output far beyond, or what is not judged beyond its limit."""
        if judgment.name not in truth.eager:
            return False
        if truth.is_noise(judgment.name) or truth.scales.get(judgment.name) == 0.0:
            return True
        limit = judgment.limits["size"]
        return family_of(judgment.name) == "value" and judgment.error.size > GARBAGE * limit

    def _look_again(self, other: Expected | None, truth: Truth, judgments: Sequence[Judgment]) -> None:
        """Looks at neighbors of the data, and whether repeated calls show the same error.

        ``other``: what the calls on other data are judged by; None: the first data.
        """
        worst: dict[str, Judgment] = {}
        for judgment in judgments:
            if judgment.name not in worst or judgment.used > worst[judgment.name].used:
                worst[judgment.name] = judgment
        data, directions = (FIRST_DATA, None) if other is None else (other.data, other.directions)
        plain = not self.compiled.constant_weights and has_plain_weights(self.variant.program.module)
        neighbors = self.checks.neighbors(
            data, WEIGHTS if plain else INPUTS, directions, self._coarseness(truth)
        )
        ranked = neighbors.ranked(self.variant, truth, worst)
        passed = [name for name, rank in ranked.items() if not rank.figures]
        again = [row.on_data(self.checks.bench, self.variant, data) for _ in range(2)] if passed else []
        for name, judgment in worst.items():
            if ranked[name].figures:
                self.failures.append((judgment, of_rank(truth, judgment, ranked[name])))
            elif not (self.checks.spread.get(name) or self._repeats(directions, truth, judgment, again)):
                self.failures.append((judgment, "another call on the same data does not show this error"))
            elif name in truth.eager:
                self.sensitive[name] = max(ranked[name].limit("size"), truth.limit(name, "size"))

    def _coarseness(self, truth: Truth) -> float:
        """How many times as far off as noisy eager the candidate's outputs are: a power of two.

        A right compiler may round more coarsely than noisy eager, as convolutions in channels-last do. Its
        outputs show how coarsely, and their error is judged by itself.
        """
        ratios = [1.0]
        for judgment in self.judgments if not self.checks.rule.reduced else ():
            if judgment.name in truth.eager and family_of(judgment.name) == "value":
                usual = self.truth_of(judgment).usual(judgment.name, "size")
                ratios += [judgment.error.size / usual] if usual > 0.0 else []
        return 2.0 ** math.ceil(math.log2(min(COARSEST, max(ratios))))

    def _repeats(
        self, directions: Directions | None, truth: Truth, judgment: Judgment, again: Sequence[Tensors]
    ) -> bool:
        """Whether every call on this data, and two more, have at least half of the error."""
        name, base = judgment.name, BASE[judgment.call]
        errors = [j.error for j in self.judgments if j.name == name and BASE[j.call] == base]
        if name in truth.eager:
            errors += [judge(truth, name, results.get(name), base).error for results in again]
        else:
            errors += [Error(slope=truth.slopes_of(directions, results).get(name, 0.0)) for results in again]
        return all(
            error.of(figure) >= REPEATED * judgment.error.of(figure)
            for error in errors
            for figure in judgment.beyond
        )

    # -- the verdict ------------------------------------------------------------------------

    def verdict(self) -> tuple[Status, Parity, tuple[str, ...]]:
        parity = self._parity()
        return self._status(parity), parity, tuple(self.notes)

    def _status(self, parity: Parity) -> Status:
        if not self.checks.can_judge:
            return Status.EAGER_TWO_RUNS_DIFFER
        if self.random or (parity.unjudged and not self.failures):
            return Status.CANNOT_JUDGE
        if self.compiled.approximate and all(_resembles(judgment) for judgment, _ in self.failures):
            return Status.APPROXIMATE
        return Status.FAIL_ACCURACY if self.failures else Status.PASS

    def _parity(self) -> Parity:
        checks, truth = self.checks, self.checks.truth
        worst: TensorError | None = None
        first = min(self.failures, key=lambda failure: _place(failure[0], truth), default=None)
        if first is not None:
            worst = as_error(self.truth_of(first[0]), first[0], first[1])
        elif self.judgments:
            nearest = max(self.judgments, key=lambda judgment: judgment.used)
            worst = as_error(self.truth_of(nearest), nearest)
        limits = dict(self._limits())
        values, gradients = (
            [x for n, x in limits.items() if family_of(n) == kind] for kind in ("value", "gradient")
        )
        sizes = {name: tensor.numel() for name, tensor in truth.eager.items()}
        fine = sum(sizes[name] for name, limit in limits.items() if limit <= FINE)
        return Parity(
            rule=checks.rule.name,
            reference="fp64" if truth.exact is not None else "eager",
            tolerance=checks.rule.delta,
            tensors=len({judgment.name for judgment in self.judgments} & truth.eager.keys()),
            failed=len({judgment.name for judgment, _ in self.failures}),
            worst=worst,
            eager_bit_equal=not any(checks.spread.values()),
            eager_spread=max(checks.spread.values(), default=0.0),
            noise_tensors=tuple(self._noise()),
            sensitive_tensors=tuple(self.sensitive),
            random=self.random,
            found_by=self._found_by(first[0]) if first is not None else "",
            steps=self.steps,
            other_data=self.changed,
            not_checked=tuple(self.not_checked),
            resolution_median=statistics.median(limits.values()) if limits else None,
            resolution_largest=max(limits.values(), default=None),
            resolution_outputs=max(values, default=None),
            resolution_gradients=max(gradients, default=None),
            used=max((j.used for j in self.judgments if not (j.beyond or j.form)), default=None),
            fine=fine / sum(sizes.values()) if sum(sizes.values()) else None,
            unjudged=self._why_not_judged(),
        )

    def truth_of(self, judgment: Judgment) -> Truth:
        expected = self.checks.expected if judgment.call < OTHER else self._other
        return self.checks.truth if expected is None else expected.at(judgment.call)

    def _limits(self) -> Iterator[tuple[str, float]]:
        """What decided each tensor that was judged, relative to its size: the largest over all data."""
        others = [self._other.at(OTHER)] if self._other is not None else []
        noise = set(self._noise())
        for name, tensor in self.checks.truth.eager.items():
            if name in noise or is_exact_kind(tensor) or name not in self.checks.truth.own:
                continue
            limits = [
                truth.limit(name, "size") for truth in (self.checks.truth, *others) if name in truth.own
            ]
            yield name, max(*limits, self.sensitive.get(name, 0.0))

    def _noise(self) -> list[str]:
        truth = self.checks.truth
        return [name for name in truth.own if truth.is_noise(name)]

    def _why_not_judged(self) -> str:
        """A sentence if eager's results do not allow a judgment; "" if they do."""
        truth, noise = self.checks.truth, set(self._noise())
        if truth.lost:
            more = f" and {len(truth.lost) - 3} more" if len(truth.lost) > 3 else ""
            return f"eager's {', '.join(truth.lost[:3])}{more} overflowed, or held NaN or infinities only"
        if "loss" in noise:
            return "eager's loss changes by more than its third when its operations round differently"
        for kind, words in (("value", "outputs"), ("gradient", "gradients")):
            sizes = {n: t.numel() for n, t in truth.eager.items() if family_of(n) == kind}
            lost = [size for name, size in sizes.items() if name in noise]
            if sum(lost) > MOST_NOISE * sum(sizes.values()):
                what = f"{len(lost)} of {len(sizes)} {words}"
                return f"{what} of eager change by a third or more when its operations round differently"
        return ""

    def _found_by(self, judgment: Judgment) -> str:
        where = f"call {judgment.call}"
        return where + (f", on other {' and '.join(self.changed)}" if judgment.call >= OTHER else "")


def _resembles(judgment: Judgment) -> bool:
    """Whether the error is smaller than the tensor: no NaN, no missing tensor."""
    return not judgment.form and 0.0 < max(judgment.error.size, abs(judgment.error.slope)) < 1.0


def _place(judgment: Judgment, truth: Truth) -> tuple[int, int, int]:
    """The order in which a step computes tensors: outputs, loss, gradients from the last to the first."""
    kinds = {"value": 0, "gradient": 1}
    names = list(truth.eager)
    place = names.index(judgment.name) if judgment.name in truth.eager else len(names)
    kind = kinds.get(family_of(judgment.name), 2)
    return judgment.call, kind, -place if kind == 1 else place
