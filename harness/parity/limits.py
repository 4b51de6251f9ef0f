"""The scaled rule's limits. ``harness.parity.rule`` states and applies them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import torch

from harness.parity.distance import Blocks, Distance
from harness.parity.reference import SMALL, Family, Reference, Rule, family_of

MAX_MULTIPLIER = 10.0
CANCELLATION = 30.0  # the error of inductor's sums was measured to be up to 26 times eager's
ZERO = 1e-6  # a truth below this share of eager's error is zero: both have computed rounding errors alone
BAD_BLOCKS = 0.05
# limits of the slope: of eager's slope, and of eager's relative error (``SLOPE_OF_NOISE``: of its square)
SLOPE_MULTIPLIER = 2.0
SLOPE_SHARE = 0.25
SLOPE_OF_NOISE = 10.0
SLOPE_CHANCE = 5.0
# multiples of eager's worst row. Roundings that a model amplifies vary by an order of magnitude
REDUCED_ROW = 3.0
FULL_ROW = 30.0

Number = TypeVar("Number", float, torch.Tensor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits for one tensor."""

    rule: Rule
    multiplier: float
    has_exact: bool
    is_small: bool
    spread: float
    family: Family
    is_value: bool = False

    @classmethod
    def for_tensor(cls, name: str, reference: Reference) -> Limits:
        eager, family = reference.eager[name], family_of(name)
        return cls(
            rule=reference.rule.of_values() if family == "value" else reference.rule,
            multiplier=reference.rule.multiplier(eager),
            has_exact=reference.exact_of(name) is not None,
            is_small=eager.numel() < SMALL,
            spread=reference.spread[name],
            family=reference.families[family],
            is_value=family == "value",
        )

    def of(self, found: Distance) -> tuple[float, float]:
        """The largest permitted RMSE, and the largest permitted error of one element."""
        e = max(found.eager_rmse, self.family.level * found.scale) if self.is_small else found.eager_rmse
        usual = self._usual(e, found.scale)
        eager, scale = torch.tensor((found.eager_rmse, found.scale), dtype=torch.float64)
        extra = float(self._extra(torch.tensor(usual, dtype=torch.float64), eager, scale))
        floor = self.rule.unit if self.has_exact else self.rule.floor(exact=False)
        tolerance = max(self.rule.tolerance, floor)
        most = MAX_MULTIPLIER * (max(found.eager_max, e) + self.spread) + tolerance * found.peak
        return (usual, most) if extra <= usual else (extra, max(most, MAX_MULTIPLIER * extra))

    def of_slope(self, found: Distance, numel: int) -> float | None:
        """The largest permitted slope; None without fp64, for small tensors, noise and sums that cancel."""
        if not self.has_exact or self.is_small or not found.eager_rmse < found.scale:
            return None
        if found.candidate_rmse > self._usual(found.eager_rmse, found.scale):
            return None
        level = (found.eager_rmse + self.spread) / found.scale
        share = SLOPE_SHARE + SLOPE_OF_NOISE * level + SLOPE_CHANCE / math.sqrt(numel)
        return SLOPE_MULTIPLIER * abs(found.eager_slope) + share * level + self.rule.slope_floor

    def of_row(self, found: Distance, blocks: Blocks) -> tuple[float, float] | None:
        """The candidate's worst row (RMS error), and the largest permitted one.

        None for gradients and buffers, where a kink may move a row, without fp64, and without a whole row.
        """
        if not (self.is_value and self.has_exact) or blocks.candidate_rows.numel() == 0:
            return None
        least = self.rule.unit * found.scale / 4
        eager, candidate = blocks.eager_rows + self.spread + least, blocks.candidate_rows
        quarter = candidate.numel() // 4 + 1
        usual = float(candidate.kthvalue(quarter).values / eager.kthvalue(quarter).values)
        most = REDUCED_ROW if self.rule.reduced else FULL_ROW
        return float(candidate.max()), most * max(1.0, usual) * float(eager.max())

    def too_many(self, blocks: Blocks) -> int:
        """How many blocks exceed twice the limit, computed with their own e and s; 0 if they are few."""
        beyond = self._beyond(blocks)
        count = int(beyond.sum())
        return count if count > max(1.0, BAD_BLOCKS * beyond.numel()) else 0

    def _beyond(self, blocks: Blocks) -> torch.Tensor:
        usual = 2 * self._usual(blocks.eager, blocks.scale)
        return blocks.candidate > torch.maximum(usual, self._extra(usual, blocks.eager, blocks.scale))

    def _usual(self, eager: Number, scale: Number) -> Number:
        """The limit of a tensor or of each block whose eager error and scale are these."""
        return self.multiplier * (eager + self.spread) + self.rule.floor(exact=self.has_exact) * scale

    def _extra(self, usual: torch.Tensor, eager: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """The limit of roundings alone: of values far below their family's, and of sums that cancel."""
        noise = torch.full_like(usual, self.rule.noise * self.family.scale)
        if not self.has_exact:
            return noise
        cancels = CANCELLATION * eager
        extra = torch.where(usual < scale, torch.minimum(cancels, noise), noise)
        return torch.where(scale <= ZERO * eager, torch.maximum(cancels, noise), extra)
