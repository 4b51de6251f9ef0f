"""The results that candidates are compared with, and the rule. ``harness.parity.rule`` states the rules."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import torch

from harness.parity.distance import Known, align, bulk, is_exact_kind, know, measure, rmse, same_bits
from harness.precision import Precision
from harness.schema import Mode

Tensors = Mapping[str, torch.Tensor]
SMALL = 1000  # elements: the RMSE of a smaller tensor is uncertain, so m is 3
NOISE = 1e-4
TRAINING, INFERENCE = 1e-2, 1e-3  # tolerances
POINTWISE_NDIM = 4  # the field rule has m = 3 for the weights of 1x1 convolutions
FIELD_LOOSE = 2e-2  # the field rule has m = 3 from this tolerance on


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    name: str  # "scaled" | "field"
    tolerance: float
    unit: float
    reduced: bool
    tolerance_of_values: float | None = None  # of outputs and loss; None: the same

    def of_values(self) -> Rule:
        """The rule for outputs and loss: a training step computes them as inference does."""
        tolerance = self.tolerance if self.tolerance_of_values is None else self.tolerance_of_values
        return replace(self, tolerance=tolerance)

    def multiplier(self, tensor: torch.Tensor) -> float:
        if self.name == "scaled":
            return 3.0 if tensor.numel() < SMALL else self.most
        half = tensor.dtype in (torch.float16, torch.bfloat16)
        pointwise = tensor.ndim == POINTWISE_NDIM and tuple(tensor.shape[2:]) == (1, 1)
        loose = half or tensor.numel() < SMALL or pointwise or self.tolerance >= FIELD_LOOSE
        return 3.0 if loose else 2.0

    def floor(self, *, exact: bool) -> float:
        """The relative error that is permitted for any tensor, whatever eager's error is."""
        return max(self.tolerance / 10, self.unit) if exact else max(self.tolerance, 16 * self.unit)

    @property
    def most(self) -> float:
        """The permitted multiple of eager's error, for a large tensor."""
        return 3.0 if self.reduced else 2.0

    @property
    def slope_floor(self) -> float:
        """The slope that is permitted for any tensor."""
        return max(self.tolerance / 20, self.unit / 4)

    @property
    def noise(self) -> float:
        return max(NOISE, self.unit)


def rule_for(name: str, mode: Mode, precision: Precision, tolerance: float | None = None) -> Rule:
    """The rule called ``name``. ``tolerance`` None: the mode's own. ``ValueError`` for another name."""
    if name not in ("scaled", "field"):
        raise ValueError(f"there is no parity rule called {name!r}")
    of_values = None
    if tolerance is None:
        tolerance, of_values = (TRAINING, INFERENCE) if mode is Mode.TRAINING else (INFERENCE, None)
    return Rule(
        name=name,
        tolerance=tolerance,
        unit=precision.unit,
        reduced=precision.reduced,
        tolerance_of_values=of_values if name == "scaled" else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Common properties of tensors of one kind: the largest RMS, and eager's median relative error."""

    scale: float
    level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The results that candidates are compared with, from the fp64 run and two eager runs of a job."""

    rule: Rule
    exact: Tensors | None  # the fp64 run; None if it failed or is another computation
    eager: Tensors
    spread: Mapping[str, float]  # RMSE between the two eager runs, by tensor
    bit_equal: bool
    families: Mapping[str, Family]
    relative_spread: float  # the largest spread relative to its tensor's RMS, without noise
    known: Mapping[str, Known] = field(default_factory=dict)  # by tensor: sums for every candidate
    lost: tuple[str, ...] = ()  # tensors with no finite value, or with values that overflowed in eager alone

    def of(self, names: Collection[str]) -> Reference:
        """The reference of these tensors alone."""
        return replace(self, eager={name: t for name, t in self.eager.items() if name in names})

    @property
    def can_judge(self) -> bool:
        """Whether the two eager runs are close enough to judge candidates."""
        if self.rule.name == "field":
            return self.bit_equal
        return self.relative_spread <= max(self.rule.tolerance, self.rule.unit)

    def exact_of(self, name: str) -> torch.Tensor | None:
        """The fp64 run's tensor, if it has the shape of eager's."""
        found = self.exact.get(name) if self.exact is not None else None
        return found if found is not None and found.shape == self.eager[name].shape else None


def make_reference(exact: Tensors | None, first: Tensors, second: Tensors, rule: Rule) -> Reference:
    """``exact``: the fp64 run, or None. ``first`` and ``second``: two runs of eager."""
    sizes = _sizes(exact, first, rule)
    if exact is not None and rule.name == "scaled" and not _is_same_computation(sizes, rule):
        exact, sizes = None, _sizes(None, first, rule)
    families = _families(first, sizes)
    equal = {name for name in first if name in second and same_bits(first[name], second[name])}
    names = dict.fromkeys((*first, *second))
    spread = {n: 0.0 if n in equal else _spread(first.get(n), second.get(n)) for n in names}
    return Reference(
        rule=rule,
        exact=exact,
        eager=first,
        spread=spread,
        bit_equal=len(equal) == len(names),
        families=families,
        relative_spread=_relative_spread(spread, sizes, families),
        known={name: size.known for name, size in sizes.items()},
        lost=tuple(name for name, tensor in first.items() if _is_lost(name, tensor, sizes)),
    )


def _is_lost(name: str, eager: torch.Tensor, sizes: Mapping[str, _Size]) -> bool:
    if is_exact_kind(eager) or eager.numel() == 0:
        return False
    return name not in sizes or sizes[name].blind > 0


def _spread(first: torch.Tensor | None, second: torch.Tensor | None) -> float:
    if first is None or second is None or first.shape != second.shape or first.dtype != second.dtype:
        return math.inf
    return rmse(first, second)


def family_of(name: str) -> str:
    """The kind of a tensor: value (output or loss), gradient or buffer. Errors of one kind are similar."""
    kind = name.split(".", 1)[0]
    return {"output": "value", "loss": "value", "input_gradient": "gradient"}.get(kind, kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """One tensor of the eager run: RMS with and without outliers, error, and whether it carries digits."""

    numel: int
    scale: float
    bulk_scale: float
    error: float
    carries_digits: bool
    known: Known
    blind: int  # values that overflowed in eager alone


def _sizes(exact: Tensors | None, eager: Tensors, rule: Rule) -> dict[str, _Size]:
    found = {}
    for name, tensor in eager.items():
        if is_exact_kind(tensor) or tensor.numel() == 0:
            continue
        truth = exact.get(name) if exact is not None else None
        truth = truth if truth is not None and truth.shape == tensor.shape else None
        sides = align(truth, tensor, tensor, reduced=rule.reduced)
        if isinstance(sides, str) or sides.truth.numel() == 0:
            continue
        known = know(sides)
        distance, _ = measure(sides, known)
        rest = bulk(sides, distance.peak)
        limit = (
            rule.multiplier(tensor) * distance.eager_rmse
            + rule.floor(exact=truth is not None) * distance.scale
        )
        found[name] = _Size(
            numel=tensor.numel(),
            scale=distance.scale,
            bulk_scale=distance.scale if rest is None else rest.scale,
            error=distance.eager_rmse,
            carries_digits=limit < distance.scale,
            known=known,
            blind=sides.blind,
        )
    return found


def _families(eager: Tensors, sizes: Mapping[str, _Size]) -> dict[str, Family]:
    families = {}
    for family in {family_of(name) for name in eager}:
        members = [size for name, size in sizes.items() if family_of(name) == family]
        scales = [size.bulk_scale for size in members if math.isfinite(size.bulk_scale)]
        sure = [size for size in members if size.carries_digits]
        sure = [size for size in sure if size.numel >= SMALL] or sure  # a small tensor may be exact by chance
        levels = [size.error / size.scale for size in sure]
        families[family] = Family(scale=max(scales, default=0.0), level=statistics.median(levels or [0.0]))
    return families


def _relative_spread(
    spread: Mapping[str, float], sizes: Mapping[str, _Size], families: Mapping[str, Family]
) -> float:
    """The largest spread, relative to its tensor's RMS, or to the family's if eager carries no digits."""
    largest = 0.0
    for name, distance in spread.items():
        size = sizes.get(name)
        whole = 1.0  # for integers, the spread is a share
        if size is not None:
            whole = size.scale if size.carries_digits else families[family_of(name)].scale
        if distance > 0.0:
            largest = max(largest, distance / whole if whole > 0.0 else math.inf)
    return largest


def _is_same_computation(sizes: Mapping[str, _Size], rule: Rule) -> bool:
    """Whether the fp64 run's outputs (without outputs, its loss) equal eager's within eager's precision."""
    for kind in ("output", "loss"):
        errors = [
            s.error / s.scale for name, s in sizes.items() if name.split(".", 1)[0] == kind and s.scale > 0.0
        ]
        if errors:
            return statistics.median(errors) <= (0.5 if rule.reduced else 0.05)
    return True
