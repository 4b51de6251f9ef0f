"""The rule of parity: whether a candidate computes what eager computes. One judge for every tensor and call.

Nobody knows how large the error of a right compiler may be. So eager is asked: *noisy eager*
(``harness.parity.noise``) is eager with its roundings drawn at random, a little louder than they are.

1. *Errors.* Against an fp64 run of the same call, each floating tensor has a size (RMS), a worst part (an
   output's, of 64 elements) and a slope (the share by which it is too large on the whole), all relative to
   the RMS of the truth. Outputs in reduced precision have a slope for each part of the model, too
   (``harness.parity.directions``). Integers: the share that differs.
2. *Limit.* The largest of delta, which does not matter, of eager's error, and of the second largest of the
   errors of eager and two noisy runs on this data. For the worst part of an output in full precision, delta
   is ``COARSE`` times the latter.
3. *Decision.* Within all limits at each call: pass. A tensor beyond a limit is looked at on ``NEIGHBORS``
   neighbors of the data, each with two noisy runs. It fails if it is beyond delta and beyond every noisy
   error, on the data and on every neighbor. (In full precision: ``MARGIN`` times every one; as many times as
   the candidate's outputs are further off than noisy eager's, but at most ``COARSE`` times.) Otherwise it is
   *sensitive*, if a repeated call shows the same error; if not, the fault comes and goes, and it fails. An
   output or loss beyond ``GARBAGE`` times the limit fails on any data.
4. *No judgment.* A tensor whose noisy error exceeds ``NOISE`` of its size is not judged: it fails only beyond
   ``GARBAGE`` times the noisy error.

If the candidate is exactly as noisy as noisy eager, an independent group of tensors fails with a probability
of 1 / C(18, 6) = 0.005 %: its 6 errors are the largest of 18.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from harness.parity.directions import Directions
from harness.parity.measure import (
    EXACT,
    Error,
    align,
    error_of,
    family_of,
    is_exact_kind,
    same_bits,
    scale_of,
    share_of_different,
)
from harness.precision import Precision
from harness.schema import TensorError
from harness.tensors import Tensors

DELTA = 1e-4  # of an output's size, in full precision; one unit in reduced precision
OF_GRADIENT = 10.0  # multiple of delta that does not matter in a gradient or buffer, in full precision
SMALL = 1000  # elements: roundings do not cancel in the slope of a smaller tensor
OF_SLOPE = 0.5  # share of delta that does not matter in a slope
RUNS = 2  # noisy runs on each data
NEIGHBORS = 5
MARGIN = 3.0  # multiple of all noisy errors, in full precision: right kernels may be coarser
COARSE = 10.0  # the largest such multiple; of the noisy error of the worst part of an output, there
NOISE = 0.3  # share of a tensor's size
GARBAGE = 30.0  # multiple of the noisy error

WORSE = Error(size=math.inf, part=math.inf, slope=math.inf)

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
        return COARSE if figure == "part" and family == "value" and not self.reduced else 1.0


def rule_for(name: str, precision: Precision) -> Rule:
    """The rule called ``name``. ``ValueError`` for another name."""
    if name not in ("noise", "field"):
        raise ValueError(f"there is no parity rule called {name!r}")
    delta = precision.unit if precision.reduced else DELTA
    return Rule(name=name, delta=delta, unit=precision.unit, reduced=precision.reduced)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What eager says about one call.

    ``noise``: the errors of noisy runs, relative to the tensor's size. ``slopes``: along each direction,
    those of eager and of the noisy runs. ``largest``: the largest size of each family. ``lost``: tensors
    without a finite value, or with values that overflowed in eager alone.
    """

    rule: Rule
    exact: Tensors | None
    eager: Tensors
    scales: Mapping[str, float]
    own: Mapping[str, Error]
    noise: Mapping[str, Sequence[Error]]
    largest: Mapping[str, float]
    lost: tuple[str, ...] = ()
    slopes: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, rule: Rule, exact: Tensors | None, eager: Tensors, noisy: Iterable[Tensors]) -> Truth:
        truth = cls._measured(rule, exact, eager)
        if rule.name != "field" and exact is not None and truth._is_another_computation():  # noqa: SLF001 - its own
            truth = cls._measured(rule, None, eager)
        noise: dict[str, list[Error]] = {name: [] for name in eager}
        for run in noisy:
            for name, draws in noise.items():
                draws.append(truth._relative(name, run.get(name)))  # noqa: SLF001 - its own
        return replace(truth, noise=noise)

    @classmethod
    def _measured(cls, rule: Rule, exact: Tensors | None, eager: Tensors) -> Truth:
        scales, own, lost = dict[str, float](), dict[str, Error](), list[str]()
        empty = cls(rule=rule, exact=exact, eager=eager, scales={}, own={}, noise={}, largest={})
        for name, tensor in eager.items():
            if tensor.numel() == 0:
                continue
            meant = empty.exact_of(name)
            if is_exact_kind(tensor):
                scales[name] = 1.0
                own[name] = EXACT if meant is None else share_of_different(meant, tensor)
                continue
            sides = align(meant, tensor, tensor, reduced=rule.reduced)
            if isinstance(sides, str) or sides.truth.numel() == 0:
                lost.append(name)
                continue
            if sides.blind:
                lost.append(name)
            scales[name] = scale_of(sides.truth)
            own[name] = error_of(name, sides.truth, sides.other)
        largest = dict[str, float]()
        for name, scale in scales.items():
            if not is_exact_kind(eager[name]):
                largest[family_of(name)] = max(scale, largest.get(family_of(name), 0.0))
        return replace(empty, scales=scales, own=own, largest=largest, lost=tuple(lost))

    def _is_another_computation(self) -> bool:
        """Whether eager's outputs (or else its loss) are no rounding of fp64's: random numbers, say."""
        for kind in ("output", "loss"):
            errors = sorted(
                self.own[name].size / scale
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
        """The error of a tensor that has eager's form; or a sentence on wrong infinities and NaN."""
        eager, meant = self.eager[name], self.exact_of(name)
        if is_exact_kind(eager):
            return share_of_different(eager if meant is None else meant, given)
        if name in self.own and same_bits(eager, given):
            return self.own[name]
        sides = align(meant, eager, given, reduced=self.rule.reduced)
        return sides if isinstance(sides, str) else error_of(name, sides.truth, sides.other)

    def relative(self, name: str, error: Error) -> Error:
        scale = self.scales.get(name, 0.0) or 1.0
        return replace(error, size=error.size / scale, part=error.part / scale)

    def _relative(self, name: str, given: torch.Tensor | None) -> Error:
        eager = self.eager[name]
        if given is None or given.shape != eager.shape or eager.numel() == 0:
            return EXACT  # a run that took another route has other tensors: it says nothing about this one
        error = self.error(name, given)
        return WORSE if isinstance(error, str) else self.relative(name, error)

    def noisy(self, name: str, figure: Figure) -> list[float]:
        """The errors that eager and the noisy runs show, relative to the tensor's size, the largest first."""
        draws = [self.relative(name, self.own.get(name, EXACT)), *self.noise.get(name, ())]
        return sorted((draw.of(figure) for draw in draws), reverse=True)

    def usual(self, name: str, figure: Figure) -> float:
        """The second largest of these errors, or eager's: one noisy run that crosses a kink hides nothing."""
        own = self.relative(name, self.own.get(name, EXACT)).of(figure)
        return max(own, self.noisy(name, figure)[:2][-1])

    def is_noise(self, name: str) -> bool:
        """Whether the tensor is not judged."""
        return self.usual(name, "size") > NOISE

    def limit(self, name: str, figure: Figure) -> float:
        """The largest permitted error at this call, relative to the tensor's size."""
        family, noisy = family_of(name), self.usual(name, figure)
        # an optimizer's update is stored in the last places of the weights: its roundings do not cancel
        if figure == "slope" and (self.eager[name].numel() < SMALL or family == "update"):
            return math.inf
        if figure == "part" and family != "value":
            return math.inf
        if self.is_noise(name) or self.scales.get(name) == 0.0:
            if figure == "slope":
                return math.inf
            rounding = self.rule.unit * self.largest.get(family, 0.0) / (self.scales.get(name, 0.0) or 1.0)
            return max(GARBAGE * noisy, rounding)
        least = self.rule.least(figure, family)
        if is_exact_kind(self.eager[name]):
            least = self.rule.unit if self.rule.reduced else 0.0
        return max(least, self.rule.multiple(figure, family) * noisy)

    def draws(self, name: str) -> list[Error]:
        """The errors of the noisy runs, of a tensor or a part of the model."""
        return [*self.noise.get(name, ()), *(Error(slope=slope) for slope in self.slopes.get(name, ())[1:])]

    def slopes_of(self, directions: Directions | None, results: Tensors) -> dict[str, float]:
        """The slope of each part of the model in these results."""
        if directions is None:
            return {}
        exact = self.exact or {}
        return directions.slopes({name: exact.get(name, t) for name, t in self.eager.items()}, results)

    def with_slopes(self, directions: Directions | None, noisy: Sequence[Tensors]) -> Truth:
        each = [self.slopes_of(directions, results) for results in (self.eager, *noisy)]
        names = [name for name in each[0] if all(name in slopes for slopes in each)]
        return replace(self, slopes={name: [slopes[name] for slopes in each] for name in names})

    def judge_slopes(self, directions: Directions | None, results: Tensors, call: int) -> Iterator[Judgment]:
        """Of each part of the model, as if it were a tensor."""
        slopes = self.slopes_of(directions, results)
        for name in slopes.keys() & self.slopes.keys():
            own, *noisy = map(abs, self.slopes[name])
            limit = max(self.rule.least("slope", "value"), own, sorted([own, *noisy])[-2])
            error = Error(slope=slopes[name])
            beyond = frozenset(("slope",) if error.of("slope") > limit else ())
            yield Judgment(name=name, call=call, error=error, beyond=beyond, limits={"slope": limit})


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """One tensor at one call. ``beyond``: figures beyond their limit. ``form``: a wrong form, as words."""

    name: str
    call: int
    error: Error = EXACT  # relative to the tensor's size
    beyond: frozenset[Figure] = frozenset()
    form: str = ""
    limits: Mapping[Figure, float] = field(default_factory=dict)

    @property
    def used(self) -> float:
        """The largest share of a limit that is used; infinite for a wrong form."""
        if self.form:
            return math.inf
        shares = [abs(getattr(self.error, f)) / limit for f, limit in self.limits.items() if limit > 0.0]
        return max(shares, default=math.inf if self.beyond else 0.0)


def judge(truth: Truth, name: str, given: torch.Tensor | None, call: int) -> Judgment:
    """Judges one tensor of a call."""
    eager = truth.eager.get(name)
    form = wrong_form(name, eager, given)
    if form or eager is None or given is None or eager.numel() == 0:
        return Judgment(name=name, call=call, form=form)
    if name not in truth.own:  # eager has no finite value
        sides = align(truth.exact_of(name), eager, given, reduced=truth.rule.reduced)
        return Judgment(name=name, call=call, form=sides if isinstance(sides, str) else "")
    error = truth.error(name, given)
    if isinstance(error, str):
        return Judgment(name=name, call=call, form=error)
    error = truth.relative(name, error)
    limits = {figure: truth.limit(name, figure) for figure in FIGURES}
    limits = {figure: limit for figure, limit in limits.items() if limit < math.inf}
    beyond = frozenset(figure for figure, limit in limits.items() if not error.of(figure) <= limit)
    return Judgment(name=name, call=call, error=error, beyond=beyond, limits=limits)


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


@dataclass(slots=True)
class Ranked:
    """A suspect among noisy eager: its errors, and the noisy ones, on some data and its neighbors.

    ``figures``: those that exceed delta and all noisy errors on all data so far.
    """

    rule: Rule
    name: str
    figures: frozenset[Figure]
    margin: float  # multiple of all noisy errors
    errors: list[Error]
    noise: list[Error]

    def add(self, error: Error, noise: Iterable[Error]) -> None:
        self.errors.append(error)
        self.noise += noise
        self.figures = frozenset(
            figure
            for figure in self.figures
            if all(error.of(figure) > self.limit(figure) for error in self.errors)
        )

    def limit(self, figure: Figure) -> float:
        """What the errors must exceed on all data."""
        family = family_of(self.name)
        noisy = max(draw.of(figure) for draw in self.noise)
        margin = max(self.margin, self.rule.multiple(figure, family))
        return max(self.rule.least(figure, family), margin * noisy)


def as_error(truth: Truth, judgment: Judgment, failure: str | None = None) -> TensorError:
    """The figures of one tensor, absolute, for the record. A part of the model is an error of the outputs."""
    name = judgment.name
    scale, own = truth.scales.get(name, 0.0), truth.own.get(name, EXACT)
    unit = scale or 1.0
    tensor = truth.eager.get(name)
    return TensorError(
        name=name,
        numel=tensor.numel() if tensor is not None else 0,
        scale=scale,
        eager_rmse=own.size,
        noisy_rmse=truth.noisy(name, "size")[0] * unit if tensor is not None else None,
        candidate_rmse=judgment.error.size * unit,
        allowed=judgment.limits.get("size", 0.0) * unit,
        candidate_max=judgment.error.part * unit,
        allowed_max=judgment.limits.get("part", 0.0) * unit,
        slope=judgment.error.slope,
        eager_slope=own.slope,
        allowed_slope=judgment.limits.get("slope"),
        failure=failure,
    )
