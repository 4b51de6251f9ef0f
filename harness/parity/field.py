"""The published rule of PyTorch's own harness, for comparisons with published numbers.

A tensor passes if ``allclose(atol=tol, rtol=tol)`` with eager, else if its RMS error against fp64 is at most
m times eager's, plus tol / 10; both are absolute, so it accepts any gradient whose values are all below tol.
Judged are the first and the third call.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from harness.parity.calls import IN_A_ROW
from harness.parity.measure import Error, flat, is_exact_kind, same_bits
from harness.parity.rule import Judgment, Truth, Verdict, wrong_form
from harness.schema import Mode, Status
from harness.tensors import Tensors

TRAINING, INFERENCE = 1e-2, 1e-3  # tolerances
SMALL = 1000  # elements: m is 3 instead of 2
POINTWISE_NDIM = 4  # m is 3 for the weights of 1x1 convolutions
LOOSE = 2e-2  # m is 3 from this tolerance on
COSINE = 0.99  # without an fp64 run


def tolerance_of(mode: Mode) -> float:
    return TRAINING if mode is Mode.TRAINING else INFERENCE


def judge_field(truth: Truth, calls: Sequence[Tensors], spread: Mapping[str, float]) -> Verdict:
    """Status, parity and notes of the first and the last of these calls.

    ``spread``: how much each tensor differs between two runs of eager.
    """
    errors = {}
    for number, results in ((1, calls[0]), (IN_A_ROW, calls[-1])):
        for name in dict.fromkeys((*truth.eager, *results)):
            judgment, why = judge_one(truth, name, results.get(name), number)
            if name not in errors or why:
                errors[name] = judgment.as_error(truth, why or None)
    wrong = [error for error in errors.values() if error.failure]
    worst = max(wrong or errors.values(), key=lambda error: error.candidate_rmse, default=None)
    parity = truth.parity(spread, tensors=len(errors), failed=len(wrong), worst=worst)
    if not parity.eager_bit_equal:
        return Status.EAGER_TWO_RUNS_DIFFER, parity, ()
    return Status.FAIL_ACCURACY if wrong else Status.PASS, parity, ()


def judge_one(truth: Truth, name: str, given: torch.Tensor | None, call: int) -> tuple[Judgment, str]:
    """One tensor: its figures, and a sentence if it fails."""
    eager = truth.eager.get(name)
    form = wrong_form(name, eager, given)
    if form or eager is None or given is None or eager.numel() == 0 or same_bits(eager, given):
        return Judgment(name=name, call=call, form=form), form
    error: Error | str = "values differ" if is_exact_kind(eager) else truth.error(name, given)
    if isinstance(error, str):
        return Judgment(name=name, call=call, form=error), error
    judgment, unit = Judgment(name=name, call=call, error=error), truth.scales.get(name) or 1.0
    tolerance = truth.rule.delta
    exact = truth.exact_of(name)
    # of an eager without a finite value, any error is allowed
    left, right = (flat(side).double() for side in (given, eager))
    close = torch.allclose(left, right, atol=tolerance, rtol=tolerance, equal_nan=True)
    if close or (exact is not None and name not in truth.own):
        return judgment, ""
    if exact is None:
        cosine = float(torch.nn.functional.cosine_similarity(left, right, dim=0))
        return judgment, "" if cosine >= COSINE else f"cosine {cosine:.3g} with eager"
    allowed = multiplier(eager, tolerance) * truth.own[name].size + tolerance / 10 / unit
    if error.size <= allowed:
        return judgment, ""
    why = f"RMS error {error.size * unit:.3g}, above the limit {allowed * unit:.3g}"
    return replace(judgment, limits={"size": allowed}), why


def verdict_of_torch(
    eager: Tensors, exact: Tensors, given: Tensors, tolerance: float, *, equal_nan: bool
) -> str:
    """What ``torch._dynamo.utils.same`` says of one step, called as ``benchmarks/dynamo`` calls it.

    ``exact``: of fp64; empty without it. That function is private to torch, and may differ or be gone.
    """
    name = f"torch._dynamo.utils.same (tol={tolerance:g}, {'with' if exact else 'without'} fp64)"
    meant = {key: exact.get(key, tensor) for key, tensor in eager.items()} if exact else None
    try:
        same: Any = importlib.import_module("torch._dynamo.utils").same
        verdict = same(dict(eager), dict(given), meant, tol=tolerance, equal_nan=equal_nan)
    except AssertionError as error:  # other names, or another type
        return f"{name}: differs ({error})"
    except Exception as error:
        return f"{name} cannot be asked: {type(error).__name__}: {error}"
    return f"{name}: {'same' if verdict else 'differs'}"


def multiplier(tensor: torch.Tensor, tolerance: float) -> float:
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    pointwise = tensor.ndim == POINTWISE_NDIM and math.prod(tensor.shape[2:]) == 1
    return 3.0 if half or tensor.numel() < SMALL or pointwise or tolerance >= LOOSE else 2.0
