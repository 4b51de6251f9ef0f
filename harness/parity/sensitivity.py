"""Perturbed weights: how far a rounding alone can move a result.

If a value lies next to a kink (a ReLU's zero, a tie of a maximum), its last digit decides on which side it
falls, and the gradient jumps. A deep model with random weights can also amplify a rounding by orders of
magnitude, into few directions of its output: eager's error in one run is then one draw from a wide
distribution. In both cases a compiler that rounds differently from eager may be as far from fp64 as a wrong
compiler, although it is correct.

``Kinks``: if a candidate fails in full precision, eager, fp64 and the candidate run at the same
perturbed weights, several times. Every run has other values next to its kinks, and is judged by its own fp64.
A kink fails in few of these runs, or has the same share in eager's errors; a fault fails in all of them. So a
tensor passes if it passes in more than half of the runs, or if the root mean square or the geometric mean of
its errors is within the same mean of the limits, as a whole and in its blocks. (Amplified roundings have
heavy tails, so the largest of a few runs would decide the root mean square.) No tensor chooses its best run.
A tensor that passes in each of the first ``ENOUGH`` runs needs no further run. A fault that fails in half of
the runs then passes with a probability of 0.39 instead of 0.36. Nor does a tensor that has passed in
``MAJORITY`` runs, whatever the rest would show.

The rule permits a candidate's outputs to be ``m`` times as far from fp64 as eager's. Such a candidate crosses
kinks more often than eager. So a tensor that still fails is compared with a louder eager: noise in the last
bits of its weights makes the error of its outputs larger, up to ``m`` times. This excuses a fault only where
roundings that the rule permits make errors of the same size, and no wrong factor (slope).

``perturbed_references``: between environments, a candidate cannot run at weights of this process. There,
a tensor passes if it passes in comparison with one of eager's runs with perturbed weights, by the rule's
own limits.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch
from torch import nn

from harness.parity.distance import Blocks, Distance
from harness.parity.limits import Limits
from harness.parity.other_data import WEIGHTS, other_data
from harness.parity.parts.balance import NONE, Factors
from harness.parity.reference import Reference, Rule, Tensors, make_reference
from harness.parity.rule import compare_one, parts_of
from harness.parity.steps import MOST, sampled
from harness.schema import TensorError
from harness.timing.step import Variant
from harness.timing.workbench import Workbench

RUNS = 8
ENOUGH = 3
MAJORITY = RUNS // 2 + 1
SIZE = 8.0  # standard deviation in units in the last place: the error of sums of thousands of terms
BITS = 13  # of 23: the last digits that change between the runs of ``Kinks``, up to 2**-10 of a value
NOISE_SEED = 1000  # of the noise in the first run
WORST = 16  # blocks in which a candidate failed; as many random ones are looked at beside them
TRIED = 2  # runs that measure the noise of the outputs

_Parts = tuple[Limits, Distance, Blocks]
_Mean = Callable[[torch.Tensor], torch.Tensor]
"""A mean over the first dimension."""


class Kinks:
    """Runs at perturbed weights, on the first data (``changed`` is empty) or on other data."""

    def __init__(
        self,
        bench: Workbench,
        rule: Rule,
        variants: list[Variant],
        changed: tuple[str, ...],
        factors: Factors = NONE,
        worst: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        """``variants``: empty, or eager and fp64, which the runs on the first and on other data share.

        ``worst``: the blocks of large tensors in which a candidate failed: a sample without them shows
        nothing.
        """
        self._bench = bench
        self._rule = rule
        self._changed = changed
        self._factors = factors
        self._variants = variants
        self._worst = worst
        self._references: list[Reference] = []  # of the runs so far
        self._louder: list[Reference] | None = None  # of all runs, with noise in eager's weights

    def excused(self, variant: Variant, names: Sequence[str]) -> Mapping[str, TensorError]:
        """Of these tensors of the candidate, those that pass over all runs, with new figures."""
        by_name: dict[str, list[_Run]] = {name: [] for name in names}
        open_names = set(names)
        for seed in range(RUNS):
            reference, results = self._reference(seed), self._results(variant, seed)
            results = {name: results[name] for name in names if name in results}
            for name in open_names:
                by_name[name].append(_Run.of(name, reference, results))
            open_names = {name for name in open_names if not _decided(by_name[name])}
            if not open_names:
                break
        found = {name: _over_runs(runs) for name, runs in by_name.items()}
        failing = [name for name, error in found.items() if error is None]
        louder = self._with_noise() if failing else []
        for name in failing if louder else ():
            each = zip(louder, by_name[name], strict=True)
            found[name] = _over_runs([_Run.of(name, loud, run.results) for loud, run in each])
        return {name: error for name, error in found.items() if error is not None}

    def _reference(self, seed: int) -> Reference:
        """Eager and fp64 with the same perturbed weights. Made for the first candidate that needs the run."""
        if not self._variants:
            self._variants += [self._bench.variant(), self._bench.variant(exact=True)]
        if seed == len(self._references):
            eager, exact = (self._results(variant, seed) for variant in self._variants)
            self._references.append(make_reference(exact, eager, eager, self._rule))
        return self._references[seed]

    def _with_noise(self) -> list[Reference]:
        """The references of all runs, with the loudest eager that the rule permits; [] if even the last bit
        is too loud. Made once.
        """
        if self._louder is None:
            bits = 0
            while bits < BITS and self._loudness(bits + 1) <= self._rule.most:
                bits += 1
            self._louder = [self._noisy(seed, bits) for seed in range(RUNS)] if bits else []
        return self._louder

    def _loudness(self, bits: int) -> float:
        """The error of eager's outputs with so many bits of noise, as a multiple of their error without."""
        ratios = []
        for seed in range(TRIED):
            plain, noisy = self._reference(seed).known, self._noisy(seed, bits).known
            ratios += [
                noisy[name].eager.rms / plain[name].eager.rms
                for name in plain.keys() & noisy.keys()
                if name.startswith("output") and plain[name].eager.rms > 0.0
            ]
        return statistics.geometric_mean(ratios) if ratios and min(ratios) > 0.0 else math.inf

    def _noisy(self, seed: int, bits: int) -> Reference:
        plain = self._reference(seed)
        eager = self._results(self._variants[0], seed, bits)
        return make_reference(plain.exact, eager, eager, self._rule)

    def _results(self, variant: Variant, seed: int, noise_bits: int = 0) -> Tensors:
        """One step's results, sampled."""
        variant.restore()
        module, weights = variant.program.module, WEIGHTS in self._changed
        data = other_data(variant, weights=weights, factors=self._factors) if self._changed else nullcontext()
        noise = perturbed_weights(module, NOISE_SEED + seed, noise_bits) if noise_bits else nullcontext()
        with data, perturbed_weights(module, seed), noise:
            made = self._bench.step(variant, restored=False)
            results = variant.results(*made, take=lambda n, tensor: sampled(tensor, self._worst.get(n, ())))
        variant.restore()
        return results


def worst_blocks(name: str, runs: Sequence[tuple[Reference, Tensors]]) -> tuple[int, ...]:
    """Of a large tensor, the numbers of the blocks in which a run is furthest off, relative to eager.

    ``runs``: the references and the whole results of a candidate's runs.
    """
    ratios = []
    for reference, results in runs:
        tensor = results.get(name)
        parts = parts_of(name, reference, results) if tensor is not None and tensor.numel() > MOST else None
        if parts is not None:
            limits, _, blocks = parts
            base = blocks.eager + limits.rule.floor(exact=limits.has_exact) * blocks.scale
            ratios.append(blocks.candidate / base.clamp_min(torch.finfo(base.dtype).tiny))
    if not ratios:
        return ()
    return tuple(torch.stack(ratios).max(0).values.argsort(descending=True)[:WORST].tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One tensor of one run. Its blocks are measured only where all runs together are judged."""

    error: TensorError
    reference: Reference
    results: Tensors

    @classmethod
    def of(cls, name: str, reference: Reference, results: Tensors) -> _Run:
        return cls(error=compare_one(name, reference, results)[0], reference=reference, results=results)

    @property
    def parts(self) -> _Parts | None:
        return parts_of(self.error.name, self.reference, self.results)


def _decided(runs: Sequence[_Run]) -> bool:
    """Whether the tensor passes, whatever further runs show."""
    passed = sum(run.error.failure is None for run in runs)
    return passed >= MAJORITY or passed == len(runs) == ENOUGH


def _over_runs(runs: Sequence[_Run]) -> TensorError | None:
    """The figures of the median run if the tensor passes over all runs."""
    errors = [run.error for run in runs]
    ordered = sorted(errors, key=lambda error: error.candidate_rmse - error.allowed)
    passing = [error for error in ordered if error.failure is None]
    if len(passing) > len(errors) / 2:
        return passing[len(passing) // 2]
    if any(not math.isfinite(error.candidate_rmse) or error.allowed == 0.0 for error in errors):
        return None
    usual = ordered[len(ordered) // 2]
    slopes = [(abs(e.slope or 0.0), e.allowed_slope) for e in errors if e.allowed_slope is not None]
    if slopes and statistics.median(s for s, _ in slopes) > statistics.median(a or 0.0 for _, a in slopes):
        return None
    for mean in (_rms, _geometric):
        pooled = replace(
            usual,
            eager_rmse=_over(mean, [error.eager_rmse for error in errors]),
            candidate_rmse=_over(mean, [error.candidate_rmse for error in errors]),
            allowed=_over(mean, [error.allowed for error in errors]),
            candidate_max=_over(mean, [error.candidate_max for error in errors]),
            allowed_max=_over(mean, [error.allowed_max for error in errors]),
            failure=None,
        )
        within = pooled.candidate_rmse <= pooled.allowed and pooled.candidate_max <= pooled.allowed_max
        if within and not _parts_fail([run.parts for run in runs], mean):
            return pooled
    return None


def _parts_fail(each: Sequence[_Parts | None], mean: _Mean) -> bool:
    """Whether rows or blocks fail over all runs: the same part of the tensor is wrong in every run."""
    judged = [one for one in each if one is not None]
    if len(judged) < len(each) or len({blocks.scale.shape for _, _, blocks in judged}) > 1:
        return bool(judged)
    limits = judged[0][0]
    rows = [limits.of_row(found, blocks) for _, found, blocks in judged]
    worst, permitted = ([row[side] for row in rows if row is not None] for side in (0, 1))
    if worst and not _over(mean, worst) <= _over(mean, permitted):
        return True
    pooled = {
        side: mean(torch.stack([getattr(blocks, side) for _, _, blocks in judged]))
        for side in ("scale", "eager", "candidate")
    }
    return limits.too_many(replace(judged[0][2], **pooled)) > 0


def _over(mean: _Mean, values: Sequence[float]) -> float:
    return float(mean(torch.tensor(values, dtype=torch.float64)))


def _rms(values: torch.Tensor) -> torch.Tensor:
    """Over the runs, which are the first dimension."""
    return values.square().mean(0).sqrt()


def _geometric(values: torch.Tensor) -> torch.Tensor:
    """The geometric mean, where a value below a hundredth of the largest counts as this hundredth."""
    largest = values.max(0).values
    return torch.where(largest > 0, torch.maximum(values, largest / 100).log().mean(0).exp(), largest)


@contextmanager
def perturbed_weights(module: nn.Module, seed: int, bits: int = BITS) -> Iterator[None]:
    """Other last ``bits`` in every float32 weight, also in an fp64 copy; afterwards the first bits again."""
    _flip_bits(module, seed, bits)
    try:
        yield
    finally:
        _flip_bits(module, seed, bits)


def _flip_bits(module: nn.Module, seed: int, last: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            values = parameter.data.to(torch.float32)
            if not parameter.is_floating_point() or not torch.equal(
                values.to(parameter.dtype), parameter.data
            ):
                continue
            bits = torch.randint(1 << last, values.shape, generator=generator, dtype=torch.int32)
            bits = torch.where(values == 0, 0, bits.to(values.device))  # zeros would become denormal numbers
            parameter.data.copy_((values.view(torch.int32) ^ bits).view(torch.float32))


def perturbed_references(
    reference: Reference, fresh: Callable[[], Variant], run: Callable[[Variant], Tensors]
) -> tuple[Reference, ...]:
    """``reference`` with runs of perturbed weights in place of eager's.

    () in reduced precision (other errors are larger than those of kinks), for the field rule (which does not
    perturb weights), and without an fp64 run (there is no truth to compare with).
    """
    rule = reference.rule
    if reference.exact is None or rule.reduced or rule.name != "scaled":
        return ()
    found = []
    for seed in range(RUNS):
        variant = fresh()
        perturb(variant.program.module, SIZE * rule.unit, seed)
        results = run(variant)
        found.append(make_reference(reference.exact, results, results, rule))
    return tuple(found)


def perturb(module: nn.Module, size: float, seed: int) -> None:
    """Multiplies every floating parameter by 1 + ``size`` * a standard normal number, in place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
                parameter.mul_(1 + size * noise.to(parameter.device, parameter.dtype))
