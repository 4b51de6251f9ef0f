"""Training runs of N steps on the same batches from the same weights: eager, noisy eager, candidates.

Each run is made in place: its variant gets the first weights and buffers and a new optimizer, and each step
the seed of its number. ``runner.analysis.verdicts.trajectory`` judges what is measured here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from harness.parity.measure import sketch
from harness.parity.noise import Noise, loudness
from harness.recorded.numerics import AGAIN, NOISY, SEEDS
from harness.schema import EAGER_START, Course, Job
from harness.tensors import dense_parts, named_tensors, shape_of
from harness.timing.step import Variant, seed_everything
from harness.timing.workbench import Workbench

PLACES = 20  # after so many of the steps, parameters are compared
FIRST_NOISE = 7919  # seed of the noise: parity has others
NOISY_STEPS = 2.2  # what a noisy step costs, in eager steps
DIGITS = 4  # of a difference

Sketches = list[torch.Tensor]


class Trajectories:
    """The runs of one job. ``say``: is told how far a run has come, and the time that is left for all.

    ``step_s``: seconds of an eager step, for the first estimate; NaN: not known.
    """

    def __init__(self, job: Job, bench: Workbench, say: Callable[[str], None], step_s: float) -> None:
        self._job, self._bench, self._say = job, bench, say
        self._steps, self._batches = job.extras.trajectory, bench.workload.batches
        self._places = tuple(sorted({math.ceil(self._steps * n / PLACES) for n in range(1, PLACES + 1)}))
        self._eager = bench.variant()
        weights = self._eager.program.module.named_parameters()
        self._weights = {name: weight.detach().clone() for name, weight in weights}
        self._first = _sketches(self._eager)
        self._of_eager: tuple[Course, list[Sketches], Sequence[str]] | None = None
        self._resolution = 0.0
        names = (EAGER_START, AGAIN, *NOISY, *(SEEDS if self._batches else ()), *job.candidates)
        self._left = self._steps * sum(map(_cost, names))  # in eager steps
        self._done, self._spent_s = (0.0, 0.0) if math.isnan(step_s) else (1.0, step_s)

    def facts(self) -> dict[str, Any]:
        """What all runs share."""
        known = {"places": self._places, "resolution": self._resolution}
        return {**known, "batches": self._batches is not None}

    def run(self, name: str, candidate: Variant | None = None, repeat: int = 0) -> Course:
        """One run: of eager (first), of another eager (``harness.schema`` has the names), of a candidate.

        The numbers of all but the first are differences from its numbers. Without batches, there is no run
        with other ones: it is empty. ``repeat``: not 0, from weights with other last digits, as noisy runs.
        """
        first = 0
        if name in SEEDS:
            if self._batches is None:
                return Course(name=name)
            first = self._steps * (1 + SEEDS.index(name))
        began, loud = time.perf_counter(), loudness(self._bench.precision)
        seed, weights = _noise_seed(name), self._weights
        noise = Noise(loud, seed) if seed else None
        if seed or repeat:
            self._left += self._steps if repeat else 0
            generator = torch.Generator().manual_seed(repeat or seed)
            weights = {name: _jittered(weight, loud, generator) for name, weight in weights.items()}
        variant = candidate or self._eager
        update = variant.training(weights, self._job.protocol, self._job.extras.learning_rate)
        rows, there, names = self._trained(name, variant, update, noise, first)
        loss, norm = zip(*rows, strict=True)
        course = Course(name=name, loss=loss, gradient_norm=norm, seconds=time.perf_counter() - began)
        if self._of_eager is None:
            self._of_eager = course, there, names
            return replace(course, parameters=tuple(_distance(now, self._first) for now in there))
        eager, theirs, known = self._of_eager
        apart = (
            _distance(now, was) / (_distance(was, self._first) or 1.0)
            for now, was in zip(there, theirs, strict=True)
        )
        return replace(
            course,
            loss=_differences(loss, eager.loss),
            gradient_norm=_differences(norm, eager.gradient_norm),
            parameters=_differences([*apart], [0.0] * len(there)),
            extra_gradients=tuple(parameter for parameter in names if parameter not in known),
        )

    def _trained(
        self, name: str, variant: Variant, update: Callable[[], object], noise: Noise | None, first: int
    ) -> tuple[list[tuple[float, float]], list[Sketches], Sequence[str]]:
        """Loss and gradient norm of each step, parameters at each place, names of those with a gradient."""
        rows, there, names = list[tuple[float, float]](), list[Sketches](), list[str]()
        for step in range(self._steps):
            began = time.perf_counter()
            left_s = self._spent_s / self._done * self._left if self._done else math.nan
            self._say(f"{name}, step {step} of {self._steps}, about {left_s:.0f} s left")
            self._give(variant, first + step)
            seed_everything(self._job.protocol.seed + step)
            with noise or nullcontext():
                loss, _ = variant.step()
            self._resolution = torch.finfo(loss.dtype).eps
            names = names or [n for n, p in variant.program.module.named_parameters() if p.grad is not None]
            rows.append((float(loss.detach()), _norm(variant) / variant.program.loss_scale))
            update()
            if step + 1 in self._places:
                there.append(_sketches(variant))
            self._done, self._left = self._done + _cost(name), self._left - _cost(name)
            self._spent_s += time.perf_counter() - began
        variant.release()
        return rows, there, names

    def _give(self, variant: Variant, step: int) -> None:
        """Copies the batch of this step into the variant's inputs and target, whose addresses code keeps."""
        if self._batches is None:
            return
        given = dict(named_tensors(self._batches(step), "batch"))
        own = dict(named_tensors(variant.program.given(), "batch"))
        shapes, others = ({n: shape_of(t) for n, t in tensors.items()} for tensors in (own, given))
        if shapes != others:
            raise ValueError(f"batches: that of step {step} has {others}, but the inputs have {shapes}")
        with torch.no_grad():
            for place, tensor in own.items():
                tensor.copy_(given[place])
        variant.drive_with()  # smaller batches of a step are copies


def _noise_seed(name: str) -> int:
    """Of a noisy eager, by its number; 0 of another run."""
    return FIRST_NOISE + int(name.split()[1]) if name.startswith("noisy ") else 0


def _cost(name: str) -> float:
    """Of a step, in eager steps."""
    return NOISY_STEPS if _noise_seed(name) else 1.0


def _jittered(weight: torch.Tensor, loud: float, generator: torch.Generator) -> torch.Tensor:
    """With other last digits, one unit up or down. ``loud``: as in ``Noise``, below 1 of a part of them.

    Noise moves no sum that cancels to nearly zero, as before a ReLU: it is relative to the result. Kernels
    round the summands, and so do other weights.
    """
    if not weight.is_floating_point():
        return weight
    signs, chosen = torch.rand(2, *weight.shape, generator=generator, device="cpu")
    units = torch.where(signs < 0.5, -1.0, 1.0) * (chosen < min(1.0, loud**2))
    factors = 1.0 + units.double() * torch.finfo(weight.dtype).eps
    return weight.mul(factors.to(weight.device, weight.dtype))


def _norm(variant: Variant) -> float:
    """Of all gradients together, in fp64."""
    gradients = (p.grad for p in variant.program.module.parameters() if p.grad is not None)
    parts = (part for gradient in gradients for _, part in dense_parts("gradient", gradient.detach()))
    norms = [torch.linalg.vector_norm(part, dtype=torch.float64) for part in parts]
    return float(torch.stack(norms).norm()) if norms else 0.0


def _sketches(variant: Variant) -> Sketches:
    weights = variant.program.module.named_parameters()
    return [sketch(name, weight.detach()).float().cpu() for name, weight in weights if weight.requires_grad]


def _distance(own: Sketches, other: Sketches) -> float:
    squares = (float((a.double() - b.double()).square().sum()) for a, b in zip(own, other, strict=True))
    return math.sqrt(sum(squares))


def _differences(own: Sequence[float], eager: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(f"{a - b:.{DIGITS}g}") for a, b in zip(own, eager, strict=True))
