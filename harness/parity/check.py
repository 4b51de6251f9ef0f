"""The check of one candidate: its calls are judged, and what is beyond a limit is looked at again."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.parity.calls import FIRST, IN_A_ROW, OTHER, Expected, FirstCalls, Row, on_data, row_on
from harness.parity.data import has_plain_weights
from harness.parity.later import Handed
from harness.parity.measure import EXACT, family_of, is_exact_kind, same_bits
from harness.parity.rule import (
    GARBAGE,
    NEIGHBORS,
    NOISE,
    Judgment,
    Truth,
    Verdict,
    exceeded,
    judge,
    limit_of_all,
    why_not_judged,
)
from harness.program import Compiled
from harness.schema import Parity, Status
from harness.tensors import listed
from harness.timing.step import Variant

if TYPE_CHECKING:
    from harness.parity.checks import Checks

FINE = 0.01  # a value is judged finely if its limit is at most this share of its tensor's size
REPEATED = 0.5  # share of an error that a repeated call shows at least

COLUMNS = (
    *("call", "tensor", "elements", "size", "eager", "noisy", "candidate", "part", "slope", "limit"),
    "outcome",
)
"""``noisy``: the largest error of eager and its noisy runs. ``limit``: of ``candidate``."""
PASS, FAIL, SENSITIVE, NOT_JUDGED = "pass", "fail", "sensitive", "not judged"


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
    changed: tuple[str, ...] = ()  # what the other data consists of
    random: str = ""
    unjudged: list[str] = field(default_factory=list)  # beyond a limit, where eager fails on neighbors
    _data: list[Expected] = field(default_factory=list)  # those that were judged
    _same: Sequence[Collection[str]] = ()  # of each first call: what has the bits of an earlier process

    @property
    def _constant(self) -> bool:
        return self.compiled.constant_weights or not has_plain_weights(self.variant.program.module)

    def run(self, calls: FirstCalls) -> None:
        truth = self.checks.truth
        self._judge_form(calls)
        self._judge_row(self.checks.expected, calls)
        if any(family_of(name) == "value" for name in truth.eager.keys() - self.checks.expected.repeated):
            self.not_checked.append("each sample: eager's outputs change from step to step")
        if self._constant:
            self.not_checked.append("other weights: this compiler makes the weights constants")
        other = self.checks.other(weights=not self._constant)
        if isinstance(other, str):
            self.not_checked.append(f"other data: {other}")
        else:
            row = row_on(self.checks.bench, self.variant, other.data)
            self._judge_memory(calls)
            self.changed = row.changed
            if row.compiled:
                self.notes.append(f"compiled again for other data of the same shapes: {row.compiled}")
            self._judge_row(other, row)
            first = set(truth.noise_tensors)
            noise = [name for name in other.truths[0].noise_tensors if name not in first]
            if noise:
                why = f"noisy eager changes it by more than {NOISE:.0%}"
                self.not_checked.append(f"{listed(noise, 5)} on other data: {why}")
            if lost := other.truths[0].lost:
                why = "eager's overflowed, or held NaN or infinities only"
                self.not_checked.append(f"{listed(lost, 5)} on other data: {why}")
        self._settle()

    def repeats(self, calls: FirstCalls, handed: Handed) -> bool:
        """Judges the first calls of a later process. Whether they clearly are what has passed before."""
        self._same = [handed.same(call, results) for call, results in enumerate(calls.results, 1)]
        self._judge_form(calls)
        self._judge_row(self.checks.expected, calls)
        same, number = sum(map(len, self._same)), sum(map(len, calls.results))
        used = f", the others use up to {self._used or 0.0:.0%} of its limits, counted from eager"
        here = f"here, {same} of {number} results have the same bits{used if same < number else ''}"
        self.not_checked.append(f"fp64, noisy eager, other data: an earlier process has checked; {here}")
        return not any(judgment.beyond for judgment in self.judgments) and self._status() is Status.PASS

    # -- judging --------------------------------------------------------------------

    def _add(self, judgment: Judgment, why: str = "") -> None:
        """``why``: it fails without a look at neighbors."""
        if why and not self.compiled.approximate:
            judgment = replace(judgment, form=why, beyond=frozenset())
        self.judgments.append(judgment)
        if judgment.form:
            self.failures.append((judgment, judgment.form))

    def _judge_form(self, calls: FirstCalls) -> None:
        eager = self.checks.form
        if eager is not None:
            self.not_checked += eager.not_compared()
            for name, why in eager.wrong_in(calls.form):
                self._add(Judgment(name=name, call=1, form=why))
            notes = eager.other_strides(calls.form), eager.shared_outputs(calls.form)
            self.notes += filter(None, notes)
        theirs, ours = (", ".join(sorted(drawn)) or "none" for drawn in (self.checks.drawn, calls.drawn))
        if theirs != ours:
            self.notes.append(f"random generators that a step draws from: {ours}; eager's: {theirs}")

    def _judge_memory(self, calls: FirstCalls) -> None:
        why = "a later call overwrites an earlier call's output"
        for name in calls.overwritten(self.checks.bench.take):
            if not self.compiled.replays:  # torch says that a replay of CUDA graphs overwrites outputs
                self._add(Judgment(name=name, call=len(calls.results), form=why))

    def _judge_row(self, expected: Expected, row: Row) -> None:
        """Judges the tensors that are not what they were at the first call of the row.

        What eager changes from call to call, such as a running mean, adds up its errors, and noise is known
        of the first call only: of a later call it fails far beyond its limit.
        """
        self._data.append(expected)
        for number, results in enumerate(row.results, expected.first):
            truth = expected.at(number)
            known = self._same[number - FIRST] if self._same else ()
            for name in [n for n in dict.fromkeys((*truth.eager, *results)) if n not in known]:
                here, there = results.get(name), row.results[0].get(name)
                first = number == expected.first
                repeated = not first and here is not None and there is not None and same_bits(here, there)
                steady = first or name not in truth.eager or expected.steady(name, number)
                if repeated and steady:
                    continue
                judgment = judge(truth, name, here, number)
                if steady or judgment.form:
                    self._add(judgment)
                elif judgment.used > GARBAGE:
                    self._add(judgment, judgment.words(truth))
        self._judge_state(expected, row)

    def _judge_state(self, expected: Expected, row: Row) -> None:
        """What eager leaves as it is must keep its bits. What eager changes fails far beyond its limit."""
        before, after, theirs = expected.eager.before, expected.eager.after, row.after
        if before is None or after is None or theirs is None:  # of a generating step
            return
        changed = {name for name, digest in after.digests.items() if before.digests.get(name) != digest}
        for name in after.digests.keys() & theirs.digests.keys() - changed:
            if theirs.digests[name] != after.digests[name]:
                why = "a step changes it; eager's step leaves it as it is"
                self._add(Judgment(name=name, call=expected.first, form=why))
        exact = expected.exact.after if expected.exact is not None else None
        begun = row.before or before  # the first calls begin alike
        # eager has taken more steps before: what it counts in a weight begins with another value
        alike = {name for name in changed if begun.digests.get(name) == before.digests.get(name)}
        eager = {name: tensor for name, tensor in after.sketches.items() if name in alike}
        truth = Truth.of(self.checks.rule, None if exact is None else exact.sketches, eager)
        for name in eager:
            judgment = judge(truth, name, theirs.sketches.get(name), expected.first)
            if judgment.used > GARBAGE:
                self._add(judgment, judgment.form or "a step changes it otherwise than eager's")

    # -- what is beyond a limit ----------------------------------------------------------

    def _settle(self) -> None:
        """Each tensor that is beyond a limit fails or is sensitive."""
        if self.compiled.approximate:
            self._settle_by_sqnr()
            return
        beyond = [judgment for judgment in self.judgments if judgment.beyond]
        suspects = [*beyond, *(judgment for judgment, _ in self.failures)]
        if not suspects:
            return
        self.random = self.checks.chance(suspects)
        for expected in self._data:
            worst: dict[str, Judgment] = {}
            for judgment in beyond:
                if judgment.call not in expected.calls:
                    continue
                if _is_gross(expected.truths[0], judgment):
                    self.failures.append((judgment, judgment.words(expected.truths[0])))
                elif judgment.name not in worst or judgment.used > worst[judgment.name].used:
                    worst[judgment.name] = judgment
            if worst and not self.random:
                self._look_again(expected, worst)

    def _settle_by_sqnr(self) -> None:
        """Every tensor at every call is to reach the bar: an average would hide a small output that is wrong.

        What has no ratio (integers, a truth of zeros) is to resemble eager's.
        """
        bar = self.checks.bench.approximate_sqnr
        for judgment in self.judgments:
            ratio, size = self._sqnr_db(judgment), judgment.error.size
            if ratio is not None and not ratio >= bar:
                self.failures.append((judgment, f"{ratio:.1f} dB; the bar is {bar:g} dB"))
            elif ratio is None and judgment.beyond and not size < 1.0:
                self.failures.append((judgment, f"off by {size:.0%}, and without a signal-to-noise ratio"))
        self.random = self.checks.chance(judgment for judgment, _ in self.failures) if self.failures else ""

    def _sqnr_db(self, judgment: Judgment) -> float | None:
        """20 log10(RMS of the truth / RMS of the error); None where it is not defined, or not judged."""
        truth, name = self.truth_of(judgment), judgment.name
        if not truth.scales.get(name) or is_exact_kind(truth.eager[name]) or judgment.form:
            return None
        size = judgment.error.size
        return None if truth.is_noise(name) else -20 * math.log10(size) if size else math.inf

    def _look_again(self, expected: Expected, worst: Mapping[str, Judgment]) -> None:
        """Looks at neighbors of the data, and whether repeated calls show the same error."""
        truth, looks = expected.truths[0], self._looks(expected, worst)
        beyond = {name: exceeded(truth, each) for name, each in looks.items()}
        runs = 2 if not all(beyond.values()) else 0
        again = [on_data(self.checks.bench, self.variant, expected.data) for _ in range(runs)]
        for name, judgment in worst.items():
            calls = [j for j in self.judgments if j.name == name and j.call in expected.calls]
            calls += [judge(truth, name, results.get(name), 0) for results in again]
            if beyond[name] and len(looks[name]) <= NEIGHBORS:
                self.unjudged.append(name)
            elif beyond[name]:
                self.failures.append((judgment, judgment.words(truth, looks[name])))
            elif not (self.checks.is_unsteady(name) or _repeats(judgment, calls)):
                self.failures.append((judgment, "another call on the same data does not show this error"))
            else:
                self.sensitive[name] = max(
                    limit_of_all(truth, looks[name], "size"), truth.limit(name, "size")
                )

    def _looks(self, expected: Expected, worst: Mapping[str, Judgment]) -> dict[str, list[Judgment]]:
        """At each suspect, on the data and its neighbors, until it is within its limits on one of them."""
        looks = {name: [judgment] for name, judgment in worst.items()}
        suspects = [*looks]
        for data, near in self.checks.neighbors(expected, constant=self._constant):
            results = on_data(self.checks.bench, self.variant, data)
            for name in suspects:
                known = name in near.eager
                look = judge(near, name, results.get(name), 0) if known else Judgment(name=name, call=0)
                looks[name].append(look)
            suspects = [name for name in suspects if exceeded(expected.truths[0], looks[name])]
            if not suspects:
                break
        return looks

    # -- the verdict ------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        return self._status(), self._parity(), tuple(self.notes)

    def _status(self) -> Status:
        if not self.checks.can_judge:
            return Status.EAGER_TWO_RUNS_DIFFER
        if self.random or (self._why_not_judged() and not self.failures):
            return Status.CANNOT_JUDGE
        return Status.FAIL_ACCURACY if self.failures else Status.PASS

    def _parity(self) -> Parity:
        checks, truth = self.checks, self.checks.truth
        failure = min(self.failures, key=lambda failure: _place(failure[0], truth), default=None)
        nearest = max(self.judgments, key=lambda judgment: judgment.used, default=None)
        worst, why = failure or (nearest, None)
        limits = dict(self._limits())
        values, gradients = (
            [x for n, x in limits.items() if family_of(n) == kind] for kind in ("value", "gradient")
        )
        sizes = {name: tensor.numel() for name, tensor in truth.eager.items()}
        fine = sum(sizes[name] for name, limit in limits.items() if limit <= FINE)
        failed = {judgment.name for judgment, _ in self.failures}  # inputs, too
        parity = truth.parity(
            checks.spread,
            tensors=len({judgment.name for judgment in self.judgments} & truth.eager.keys() | failed),
            failed=len(failed),
            worst=worst.as_error(self.truth_of(worst), why) if worst is not None else None,
        )
        return replace(
            parity,
            noise_tensors=truth.noise_tensors,
            sensitive_tensors=tuple(self.sensitive),
            random=self.random,
            found_by=self._found_by(failure[0]) if failure is not None else "",
            steps=0 if checks.bench.generates else IN_A_ROW * len(self._data),
            other_data=self.changed,
            not_checked=tuple(self.not_checked),
            resolution_median=statistics.median(limits.values()) if limits else None,
            resolution_largest=max(limits.values(), default=None),
            resolution_outputs=max(values, default=None),
            resolution_gradients=max(gradients, default=None),
            used=self._used,
            fine=fine / sum(sizes.values()) if sum(sizes.values()) else None,
            unjudged=self._why_not_judged(),
            sqnr_db=self._lowest_sqnr_db,
        )

    def _why_not_judged(self) -> str:
        why = why_not_judged(self._truths, training=self.checks.bench.training)
        if self.unjudged and not why:
            names = listed([*dict.fromkeys(self.unjudged)])
            return f"eager fails on neighbors of the data, where {names} would be looked at again"
        return why

    @property
    def _used(self) -> float | None:
        return max((j.used for j in self.judgments if not (j.beyond or j.form)), default=None)

    @property
    def _lowest_sqnr_db(self) -> float | None:
        ratios = map(self._sqnr_db, self.judgments if self.compiled.approximate else ())
        return min((ratio for ratio in ratios if ratio is not None), default=None)

    def truth_of(self, judgment: Judgment) -> Truth:
        truths = (each.at(judgment.call) for each in self._data if judgment.call in each.calls)
        return next(truths, self.checks.truth)

    @property
    def _truths(self) -> list[Truth]:
        """Of the first call on each data."""
        return [expected.truths[0] for expected in self._data] or [self.checks.truth]

    def _limits(self) -> Iterator[tuple[str, float]]:
        """What decided each tensor, relative to its size: the largest over all data where it is judged."""
        noise = set(self.checks.truth.noise_tensors)
        for name, tensor in self.checks.truth.eager.items():
            if name in noise or is_exact_kind(tensor) or name not in self.checks.truth.own:
                continue
            judged = [truth for truth in self._truths if name in truth.own and not truth.is_noise(name)]
            yield name, max([truth.limit(name, "size") for truth in judged] + [self.sensitive.get(name, 0.0)])

    def _found_by(self, judgment: Judgment) -> str:
        where = f"call {judgment.call}"
        return where + (f", on other {' and '.join(self.changed)}" if judgment.call >= OTHER else "")


def _repeats(judgment: Judgment, calls: Iterable[Judgment]) -> bool:
    """Whether each of these calls on the same data has at least half of the error."""
    return all(
        call.off_by(figure) >= REPEATED * judgment.error.of(figure)
        for call in calls
        for figure in judgment.beyond
    )


def _is_gross(truth: Truth, judgment: Judgment) -> bool:
    """Whether it fails on any data: a value far beyond its limit, or anything where eager has zeros."""
    name, is_value = judgment.name, family_of(judgment.name) == "value"
    if truth.scales.get(name) == 0.0 or (is_value and truth.is_noise(name)):
        return True
    return is_value and "size" in judgment.beyond and judgment.error.size > GARBAGE * judgment.limits["size"]


def _place(judgment: Judgment, truth: Truth) -> tuple[int, int, int]:
    """The order in which a step computes tensors: outputs, loss, gradients from the last to the first."""
    kinds = {"value": 0, "gradient": 1}
    names = list(truth.eager)
    place = names.index(judgment.name) if judgment.name in truth.eager else len(names)
    kind = kinds.get(family_of(judgment.name), 2)
    return judgment.call, kind, -place if kind == 1 else place


# -- the table beside the case's log -----------------------------------------------------


def write(path: Path, check: Check) -> None:
    """Writes the table of the figures: each tensor at each call that was judged.

    Errors are shares of the tensor's size. A call that repeats an earlier one has no rows. If the disk does
    not take the table, which costs no verdict, the log says so.
    """
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(COLUMNS)
            table.writerows(_rows(check))
    except OSError as error:
        print(f"no table of parity's figures: {error}", flush=True)


def _rows(check: Check) -> Iterator[tuple[object, ...]]:
    failed = {(judgment.name, judgment.call >= OTHER) for judgment, _ in check.failures}
    for judgment in check.judgments:
        truth, name, error = check.truth_of(judgment), judgment.name, judgment.error
        beyond = bool((judgment.beyond and not check.compiled.approximate) or judgment.form)
        if (beyond or judgment.beyond) and (name, judgment.call >= OTHER) in failed:
            outcome = FAIL
        elif (beyond and name in check.unjudged) or (name in truth.own and truth.is_noise(name)):
            outcome = NOT_JUDGED
        else:
            outcome = SENSITIVE if beyond else PASS
        tensor = truth.eager.get(name)
        own = truth.own.get(name, EXACT)
        noisy = truth.loudest(name, "size") if tensor is not None else 0.0
        limit = judgment.limits.get("size", 0.0)
        figures = [truth.scales.get(name, 0.0), own.size, noisy, error.size, error.part, error.slope, limit]
        yield judgment.call, name, 0 if tensor is None else tensor.numel(), *map(_text, figures), outcome


def _text(figure: float) -> str:
    return f"{figure:.3g}"
