"""Dropout at its real rate (``--dropout=keep``), tested as statistics, for random numbers differ.

A compiler may draw other random numbers than eager, so the results of a model with dropout cannot be
compared. A *probe* can be tested: one dropout of the model's own probability on ``ELEMENTS`` ones, compiled
by the same compiler, in ``STEPS`` steps without seeding between them. Its mask is read off its output. The
tests, for each probability:

- the scale: every kept element is 1 / (1 - p), to ``SCALE`` of it, and the gradient of the input equals the
  output (the backward uses the forward's mask);
- the rate: the kept elements of all steps are binomial with 1 - p;
- independence: elements kept both in one step and in the next, and both in one half of a mask and in the
  other, are binomial with (1 - p)^2.

The last two are normal tests at the level ``LEVEL`` divided by their number, so a right compiler is called
wrong in about one of a million probes (``LEAST``: where the normal approximation holds). A rate that is wrong
by five to six times sqrt(p (1 - p) / 262144), that is 0.3 % at p = 0.1, is found in half of the probes, and
one twice as wrong in practically all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import NormalDist

import torch
from torch import nn

from harness.failures import line_of
from harness.program import Compiled, Program
from harness.schema import Parity, Status, TensorError
from harness.timing.workbench import Workbench

ELEMENTS = 1 << 16
STEPS = 4
SCALE = 0.01  # a little more than the epsilon of bfloat16
LEVEL = 1e-6
LEAST = 100

Step = Callable[[], tuple[torch.Tensor, torch.Tensor]]
"""One step of the probe: its output and the gradient of its input for a loss that sums the output."""


def rates_of(module: nn.Module) -> tuple[float, ...]:
    """The probabilities of the dropout layers that drop in training mode, each once."""
    layers = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
    rates = {float(part.p) for part in module.modules() if isinstance(part, layers) and part.training}
    return tuple(sorted(rate for rate in rates if can_test(rate)))


def can_test(rate: float) -> bool:
    return ELEMENTS * min(rate**2, (1 - rate) ** 2, rate, 1 - rate) >= LEAST


def wrong_dropout(rate: float, step: Step) -> str:
    """What is wrong with the probe's dropout, in a sentence; "" if the tests find nothing."""
    masks = []
    for _ in range(STEPS):
        output, gradient = (tensor.detach().double().flatten().cpu() for tensor in step())
        kept = output != 0
        scale = 1 / (1 - rate)
        if bool(kept.any()) and bool(((output[kept] - scale).abs() > SCALE * scale).any()):
            return f"kept values are multiplied by {float(output[kept].mean()):.4g} instead of {scale:.4g}"
        if bool(((gradient - output).abs() > SCALE * scale).any()):
            return "the backward drops other elements than the forward, or scales them by another factor"
        masks.append(kept)
    return next(_of_masks(rate, masks), "")


def _of_masks(rate: float, masks: Sequence[torch.Tensor]) -> Iterator[str]:
    keep = 1 - rate
    half = masks[0].numel() // 2
    pairs = [("two steps in a row", one, other) for one, other in pairwise(masks)]
    pairs += [("two halves of a tensor", mask[:half], mask[half : 2 * half]) for mask in masks]
    limit = NormalDist().inv_cdf(1 - LEVEL / (2 * (1 + len(pairs))))
    kept = sum(int(mask.sum()) for mask in masks)
    total = sum(mask.numel() for mask in masks)
    if abs(_deviation(kept, total, keep)) > limit:
        yield f"{1 - kept / total:.3%} of the elements are dropped instead of {rate:.3%}"
    for what, one, other in pairs:
        if abs(_deviation(int((one & other).sum()), one.numel(), keep**2)) > limit:
            yield f"the masks of {what} depend on each other"


def _deviation(found: int, total: int, share: float) -> float:
    """Standard deviations by which a binomial count is off."""
    return (found - total * share) / math.sqrt(total * share * (1 - share))


def judge_dropout(
    bench: Workbench,
    module: nn.Module,
    compile: Callable[[Program], Compiled],  # noqa: A002 - as backends call it
    status: Status,
    found: Parity,
) -> tuple[Status, Parity, tuple[str, ...]]:
    """Tests a probe of each of the module's probabilities. Returns status, parity and notes."""
    rates = rates_of(module)
    for rate in rates:
        try:
            wrong = wrong_dropout(rate, _probe(bench, rate, compile))
        except Exception as error:  # what compiles the model need not compile the probe
            return (
                status,
                found,
                (f"dropout {rate:g} is not tested: {type(error).__name__}: {line_of(error)}",),
            )
        if wrong:
            return Status.FAIL_ACCURACY, _failed(found, rate, wrong), ()
    if not rates:
        return status, found, ()
    named = ", ".join(f"{rate:g}" for rate in rates)
    return (
        status,
        found,
        (f"dropout {named}: scale, rate and independence of the masks are right in a probe",),
    )


def _probe(bench: Workbench, rate: float, compile: Callable[[Program], Compiled]) -> Step:  # noqa: A002
    dtype = bench.precision.cast or torch.float32
    ones = torch.ones(256, ELEMENTS // 256, device=bench.device, dtype=dtype, requires_grad=True)
    probe = nn.Dropout(rate).train()
    program = Program(module=probe, args=(ones,), kwargs={}, target=None, loss=summed, training=True)
    with bench.precision.surroundings():
        compiled = compile(program)

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        ones.grad = None
        with bench.precision.context(bench.device.type):
            loss, output = compiled.forward((ones,), {}, None)
        loss.backward()
        assert ones.grad is not None
        return output, ones.grad

    return step


def summed(output: torch.Tensor, _: object) -> torch.Tensor:
    return output.sum()


def _failed(found: Parity, rate: float, wrong: str) -> Parity:
    worst = TensorError(
        name=f"dropout {rate:g}",
        numel=ELEMENTS,
        scale=1.0,
        eager_rmse=0.0,
        candidate_rmse=0.0,
        allowed=0.0,
        candidate_max=0.0,
        allowed_max=0.0,
        failure=wrong,
    )
    return replace(found, failed=1, worst=worst, random="", found_by="a probe of dropout")
