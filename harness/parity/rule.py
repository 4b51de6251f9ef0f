"""The rule of parity: whether a candidate computes what eager computes. ``docs/PARITY.md`` tells it.

``Truth`` is what eager, fp64 and noisy eager say of one call; ``judge`` compares a tensor with it, and
all looks at a suspect, on the data and its neighbors, are one list, which ``exceeded`` judges.

If the candidate is exactly as noisy as noisy eager, an independent group of tensors fails with a probability
of 1 / C(18, 6) = 0.005 %: its 6 errors are the largest of 18.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from harness.parity.measure import EXACT, Error, align, error_of, family_of, is_exact_kind, same_bits
from harness.precision import Precision
from harness.schema import Parity, Status, TensorError
from harness.tensors import Tensors, listed

DELTA = 1e-4  # of an output's size, in full precision; one unit in reduced precision
OF_GRADIENT = 10.0  # multiple of delta that does not matter in a gradient or buffer, in full precision
SMALL = 1000  # elements: roundings do not cancel in the slope of a smaller tensor
OF_SLOPE = 0.5  # share of delta that does not matter in a slope
RUNS = 2  # noisy runs on each data
NEIGHBORS = 5
MARGIN = 3.0  # multiple of all noisy errors that a failing tensor exceeds, in full precision
MARGIN_OF_PART = 10.0  # the same of the worst part of an output
NOISE = 0.3  # share of a tensor's size
MOST_NOISE = 0.2  # share of the values of outputs, and of gradients, that need not be judged
GARBAGE = 30.0  # multiple of the noisy error
DIRECTED = 0.5  # share of an error that is a wrong factor

Verdict = tuple[Status, Parity, tuple[str, ...]]
"""Status, parity and notes."""

WORSE = Error(size=math.inf, part=math.inf, slope=math.inf)
REFUSED = replace(WORSE, slope=-math.inf)  # of a noisy run that the model refuses: equal to no other error

Figure = str
FIGURES: tuple[Figure, ...] = ("size", "part", "slope")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """``delta``: the relative error that does not matter (of the field rule: its tolerance).

    ``unit``: machine epsilon of the lowest precision.
    """

    name: str  # "noise" | "field"
    delta: float
    unit: float
    reduced: bool

    def least(self, figure: Figure, family: str) -> float:
        """What does not matter of this figure."""
        delta = self.delta * (OF_SLOPE if figure == "slope" else 1.0)
        if self.reduced:
            return delta
        if family == "value":
            return self.unit if figure == "part" else delta
        return delta * OF_GRADIENT

    def multiple(self, figure: Figure, family: str) -> float:
        """Of the noisy error: delta would hide an error in one place of an output in full precision."""
        return MARGIN_OF_PART if figure == "part" and family == "value" and not self.reduced else 1.0

    def margin(self, figure: Figure, family: str) -> float:
        """The multiple of all noisy errors that a failing tensor exceeds: right kernels may be coarser."""
        return 1.0 if self.reduced else max(MARGIN, self.multiple(figure, family))


def rule_for(name: str, precision: Precision) -> Rule:
    """The rule called ``name``. ``ValueError`` for another name."""
    if name not in ("noise", "field"):
        raise ValueError(f"there is no parity rule called {name!r}")
    delta = precision.unit if precision.reduced else DELTA
    return Rule(name=name, delta=delta, unit=precision.unit, reduced=precision.reduced)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What eager says about one call.

    ``own``: eager's errors, relative to the tensor's size (``scales``); ``noise``: those of noisy runs.
    ``largest``: the largest size of each family. ``lost``: tensors without a finite value, or with values
    that overflowed in eager alone.
    """

    rule: Rule
    exact: Tensors | None
    eager: Tensors
    scales: Mapping[str, float]
    own: Mapping[str, Error]
    noise: Mapping[str, Sequence[Error]]
    largest: Mapping[str, float]
    lost: tuple[str, ...] = ()

    @classmethod
    def of(cls, rule: Rule, exact: Tensors | None, eager: Tensors, noisy: Sequence[Tensors] = ()) -> Truth:
        truth = cls._measured(rule, exact, eager)
        if rule.name != "field" and exact is not None and truth._is_another_computation():  # noqa: SLF001 - its own
            truth = cls._measured(rule, None, eager)
        noise = {name: [truth._of_noisy(name, run) for run in noisy] for name in eager}  # noqa: SLF001
        return replace(truth, noise=noise)

    @classmethod
    def _measured(cls, rule: Rule, exact: Tensors | None, eager: Tensors) -> Truth:
        scales, largest = dict[str, float](), dict[str, float]()
        own, lost = dict[str, Error](), list[str]()
        empty = cls(rule=rule, exact=exact, eager=eager, scales={}, own={}, noise={}, largest={})
        for name, tensor in eager.items():
            if tensor.numel() == 0:
                continue
            meant = empty.exact_of(name)
            if is_exact_kind(tensor):
                scales[name] = 1.0
                own[name] = error_of(name, tensor if meant is None else meant, tensor)
                continue
            sides = align(meant, tensor, tensor, reduced=rule.reduced)
            assert not isinstance(sides, str)  # eager has its own infinities
            if sides.blind or not sides.truth.numel():
                lost.append(name)
            if sides.truth.numel():
                scales[name] = sides.scale
                own[name] = error_of(name, sides.truth, sides.other).over(sides.scale)
                largest[family_of(name)] = max(scales[name], largest.get(family_of(name), 0.0))
        return replace(empty, scales=scales, own=own, largest=largest, lost=tuple(lost))

    def _is_another_computation(self) -> bool:
        """Whether eager's outputs (or else its loss) are no rounding of fp64's: random numbers, say."""
        for kind in ("output", "loss"):
            errors = sorted(
                self.own[name].size
                for name, scale in self.scales.items()
                if name.split(".", 1)[0] == kind and scale > 0.0 and not is_exact_kind(self.eager[name])
            )
            if errors:
                return not errors[len(errors) // 2] <= NOISE
        return False

    def exact_of(self, name: str) -> torch.Tensor | None:
        """The fp64 run's tensor, if it has the shape of eager's."""
        tensor = self.exact.get(name) if self.exact is not None else None
        return tensor if tensor is not None and tensor.shape == self.eager[name].shape else None

    def error(self, name: str, given: torch.Tensor) -> Error | str:
        """The relative error of a tensor that has eager's form; or a sentence on wrong infinities and NaN."""
        eager, meant = self.eager[name], self.exact_of(name)
        if is_exact_kind(eager):
            return error_of(name, eager if meant is None else meant, given)
        if name in self.own and same_bits(eager, given):
            return self.own[name]
        sides = align(meant, eager, given, reduced=self.rule.reduced)
        if isinstance(sides, str):
            return sides
        return error_of(name, sides.truth, sides.other).over(self.scales.get(name, 0.0))

    def _of_noisy(self, name: str, run: Tensors) -> Error:
        eager, given = self.eager[name], run.get(name)
        if not run:
            return REFUSED
        if given is None or given.shape != eager.shape or eager.numel() == 0:
            return EXACT  # a run that took another route has other tensors: it says nothing about this one
        error = self.error(name, given)
        return WORSE if isinstance(error, str) else error

    def draws(self, name: str) -> list[Error]:
        """The errors of eager and of its noisy runs."""
        return [self.own.get(name, EXACT), *self.noise.get(name, ())]

    def loudest(self, name: str, figure: Figure, more: Iterable[Error] = ()) -> float:
        """The largest of these errors and of ``more``. Runs that the model refuses do not count."""
        return max(draw.of(figure) for draw in (*self.draws(name), *more) if draw != REFUSED)

    def usual(self, name: str, figure: Figure) -> float:
        """The second largest of these errors, or eager's: one noisy run that crosses a kink hides nothing."""
        own, *noisy = (draw.of(figure) for draw in self.draws(name))
        return max(own, sorted((own, *noisy))[-2:][0])

    def is_noise(self, name: str) -> bool:
        """Whether the tensor is not judged."""
        return self.usual(name, "size") > NOISE

    @property
    def noise_tensors(self) -> tuple[str, ...]:
        """The tensors that are not judged."""
        return tuple(name for name in self.own if self.is_noise(name))

    def limit(self, name: str, figure: Figure) -> float:
        """The largest permitted error at this call, relative to the tensor's size."""
        family, noisy = family_of(name), self.usual(name, figure)
        # an optimizer's update is stored in the last places of the weights: its roundings do not cancel
        small = self.eager[name].numel() < SMALL or family == "update"
        if (figure == "part" and family != "value") or (figure == "slope" and small):
            return math.inf
        if self.is_noise(name) or self.scales.get(name) == 0.0:
            if figure == "slope":
                return math.inf
            rounding = self.rule.unit * self.largest.get(family, 0.0) / (self.scales.get(name, 0.0) or 1.0)
            return max(GARBAGE * noisy, rounding)
        return max(self.least(name, figure), self.rule.multiple(figure, family) * noisy)

    def least(self, name: str, figure: Figure) -> float:
        """What does not matter of this figure: of integers nothing, in full precision."""
        if is_exact_kind(self.eager[name]):
            return self.rule.unit if self.rule.reduced else 0.0
        return self.rule.least(figure, family_of(name))

    def parity(
        self, spread: Mapping[str, float], *, tensors: int, failed: int, worst: TensorError | None
    ) -> Parity:
        """What each rule records. ``spread``: how much each tensor differs between two runs of eager."""
        return Parity(
            rule=self.rule.name,
            reference="fp64" if self.exact is not None else "eager",
            tolerance=self.rule.delta,
            tensors=tensors,
            failed=failed,
            worst=worst,
            eager_bit_equal=not any(spread.values()),
            eager_spread=max(spread.values(), default=0.0),
        )


def why_not_judged(truths: Sequence[Truth], *, training: bool) -> str:
    """A sentence if eager's results do not allow a judgment; "" if they do.

    ``truths``: of the first call on each data. A gradient of zeros is right whatever the backward computes.
    """
    truth, noise = truths[0], set(truths[0].noise_tensors)
    if truth.lost:
        return f"eager's {listed(truth.lost)} overflowed, or held NaN or infinities only"
    if "loss" in noise:
        return "eager's loss changes by more than its third when its operations round differently"
    for kind, words in (("value", "outputs"), ("gradient", "gradients")):
        sizes = {n: t.numel() for n, t in truth.eager.items() if family_of(n) == kind}
        lost = [size for name, size in sizes.items() if name in noise]
        if sum(lost) > MOST_NOISE * sum(sizes.values()):
            what = f"{len(lost)} of {len(sizes)} {words}"
            return f"{what} of eager change by a third or more when its operations round differently"
    if training and not any(each.largest.get(kind) for each in truths for kind in ("gradient", "update")):
        why = "each is 0 in eager"
        if not any(family_of(name) == "gradient" for name in truth.eager):
            why = "the step has gradients only of tensors that the module does not hold"
        return f"no gradient can be compared: {why}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """One tensor at one call. ``beyond``: figures beyond their limit. ``form``: a wrong form, as words.

    ``noise``: the errors of noisy runs on the same data.
    """

    name: str
    call: int
    error: Error = EXACT  # relative to the tensor's size
    beyond: frozenset[Figure] = frozenset()
    form: str = ""
    limits: Mapping[Figure, float] = field(default_factory=dict)
    noise: Sequence[Error] = ()

    @classmethod
    def of(cls, truth: Truth, name: str, error: Error, call: int) -> Judgment:
        """Of a tensor's error, relative to its size."""
        limits = {figure: truth.limit(name, figure) for figure in FIGURES}
        limits = {figure: limit for figure, limit in limits.items() if limit < math.inf}
        beyond = frozenset(figure for figure, limit in limits.items() if not error.of(figure) <= limit)
        noise = truth.noise.get(name, ())
        return cls(name=name, call=call, error=error, beyond=beyond, limits=limits, noise=noise)

    def off_by(self, figure: Figure) -> float:
        return math.inf if self.form else self.error.of(figure)

    @property
    def used(self) -> float:
        """The largest share of a limit that is used; infinite for a wrong form."""
        if self.form:
            return math.inf
        shares = [abs(getattr(self.error, f)) / limit for f, limit in self.limits.items() if limit > 0.0]
        return max(shares, default=math.inf if self.beyond else 0.0)

    def as_error(self, truth: Truth, failure: str | None = None) -> TensorError:
        """The figures for the record, absolute."""
        name = self.name
        scale, own = truth.scales.get(name, 0.0), truth.own.get(name, EXACT)
        unit = scale or 1.0
        tensor = truth.eager.get(name)
        return TensorError(
            name=name,
            numel=tensor.numel() if tensor is not None else 0,
            scale=scale,
            eager_rmse=own.size * unit,
            noisy_rmse=truth.loudest(name, "size") * unit if tensor is not None else None,
            candidate_rmse=self.error.size * unit,
            allowed=self.limits.get("size", 0.0) * unit,
            candidate_max=self.error.part * unit,
            allowed_max=self.limits.get("part", 0.0) * unit,
            slope=self.error.slope,
            eager_slope=own.slope,
            allowed_slope=self.limits.get("slope"),
            failure=failure,
        )

    def words(self, truth: Truth, looks: Sequence[Judgment] = ()) -> str:
        """Why it fails: the candidate, eager and noisy eager side by side.

        ``looks``: on the data and on its neighbors; none: a failure on this data alone.
        """
        name, error = self.name, self.error
        beyond = exceeded(truth, looks) if looks else self.beyond
        figure = next((figure for figure in FIGURES if figure in beyond), "size")
        ours, theirs = truth.own[name].of(figure), error.of(figure)
        noisy = truth.loudest(name, figure, (draw for look in looks for draw in look.noise))
        what = {"size": "", "part": " in its worst part", "slope": " on the whole"}[figure]
        limit = limit_of_all(truth, looks, figure) if looks else theirs
        # as many as tell the error from its limit
        digits = next((n for n in range(2, 6) if _share(theirs, n) != _share(limit, n)), 2)
        words = f"off by {_share(theirs, digits)}{what}; eager: {_share(ours)}; noisy eager: {_share(noisy)}"
        if looks:
            least = min(look.off_by(figure) for look in looks)
            words += f"; limit: {_share(limit, digits)}"
            words += f"; on {len(looks)} of {len(looks)} data sets, by {_share(least)} at least"
        if abs(error.slope) >= DIRECTED * error.size > 0.0 and figure != "slope":
            words += f"; {_share(error.slope)} too {'large' if error.slope > 0 else 'small'} on the whole"
        elif figure == "size" and not is_exact_kind(truth.eager[name]):
            words += "; without a direction"
        return f"{words}; {'eager' if ours < theirs else 'the candidate'} is nearer to fp64"


def judge(truth: Truth, name: str, given: torch.Tensor | None, call: int) -> Judgment:
    eager = truth.eager.get(name)
    form = wrong_form(name, eager, given)
    if form or eager is None or given is None or eager.numel() == 0:
        return Judgment(name=name, call=call, form=form)
    error = truth.error(name, given)
    if isinstance(error, str):
        return Judgment(name=name, call=call, form=error)
    if name not in truth.own:  # eager has no finite value
        return Judgment(name=name, call=call)
    return Judgment.of(truth, name, error, call)


def wrong_form(name: str, eager: torch.Tensor | None, given: torch.Tensor | None) -> str:
    """A sentence; "" if the form is right. A gradient of zeros may be left out."""
    if eager is None or given is None:
        tensor = given if eager is None else eager
        if tensor is None or (family_of(name) == "gradient" and not bool(tensor.any())):
            return ""
        return "only the candidate has it" if eager is None else "missing"
    if given.shape != eager.shape:
        return f"shape {tuple(given.shape)} instead of {tuple(eager.shape)}"
    if given.dtype != eager.dtype:
        return f"dtype {given.dtype} instead of {eager.dtype}"
    if given.device != eager.device:
        return f"on the device {given.device} instead of {eager.device}"
    return ""


def exceeded(truth: Truth, looks: Sequence[Judgment]) -> frozenset[Figure]:
    """The figures of a suspect that are beyond delta and all noisy errors at each of these looks.

    ``looks``: on some data, whose ``truth`` it is, and on neighbors of it.
    """
    if len(looks) == 1:
        return looks[0].beyond
    limits = {figure: limit_of_all(truth, looks, figure) for figure in looks[0].beyond}
    return frozenset(f for f, limit in limits.items() if all(look.off_by(f) > limit for look in looks))


def limit_of_all(truth: Truth, looks: Sequence[Judgment], figure: Figure) -> float:
    """What the errors must exceed at all looks. (A run that the model refuses would hide any error.)"""
    name = looks[0].name
    draws = (draw.of(figure) for look in looks for draw in look.noise if draw != REFUSED)
    margin = truth.rule.margin(figure, family_of(name))
    return max(truth.least(name, figure), margin * max(draws, default=math.inf))


def _share(value: float, digits: int = 2) -> str:
    percent = abs(value) * 100
    return f"{percent:.0f} %" if 100 <= percent < math.inf else f"{percent:.{digits}g} %"
