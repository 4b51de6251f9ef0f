"""The published rule: allclose, else the RMS error against m times eager's, else the cosine."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from harness.parity.field import judge_one, multiplier, tolerance_of
from harness.schema import Mode, Status
from harness.workload import Workload
from tests.factories import known
from tests.worker.planted import Of, drawn, opened, right, rule, truth_of, with_fault, workload, wrong_by

TRAINING, INFERENCE = Mode.TRAINING, Mode.INFERENCE


def why(exact: torch.Tensor | None, eager: torch.Tensor, given: torch.Tensor, mode: Mode = TRAINING) -> str:
    by = replace(rule("field"), delta=tolerance_of(mode))
    truth = truth_of(None if exact is None else {"output": exact}, {"output": eager}, by=by)
    return judge_one(truth, "output", given, 1)[1]


def published(exact: torch.Tensor, eager: torch.Tensor, given: torch.Tensor, tolerance: float) -> bool:
    """The formula of torch._dynamo.utils.same, in numpy."""
    truth, ours, theirs = (tensor.double().numpy() for tensor in (exact, eager, given))
    if np.allclose(theirs, ours, atol=tolerance, rtol=tolerance):
        return True
    factor = 3.0 if eager.dtype is torch.bfloat16 or eager.numel() < 1000 or tolerance >= 2e-2 else 2.0

    def rmse(values: object) -> float:
        return float(np.sqrt(np.mean(np.square(truth - values))))

    return rmse(theirs) <= factor * rmse(ours) + tolerance / 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", [TRAINING, INFERENCE])
@pytest.mark.parametrize("count", [999, 4096])
def test_it_is_the_published_formula(count: int, mode: Mode, dtype: torch.dtype) -> None:
    """Over sizes and errors on both sides of every limit."""
    verdicts = set()
    for seed in range(60):
        scale, own, off = (10.0 ** float(x) for x in np.random.default_rng(seed).uniform(-4, 0.5, 3))
        exact = scale * drawn(count, seed)
        eager = (exact + own * drawn(count, seed + 1000)).to(dtype)
        given = (exact + off * drawn(count, seed + 2000)).to(dtype)
        verdict = not why(exact, eager, given, mode)
        assert verdict is published(exact, eager, given, tolerance_of(mode)), seed
        verdicts.add(verdict)
    assert verdicts == {True, False}


def test_it_is_absolute_and_so_zeros_pass_for_small_values() -> None:
    small = 1e-3 * drawn(4096)
    assert not why(small, small.float(), torch.zeros(4096))
    assert "RMS error 0.21, above the limit 0.201" in why(
        drawn(4096), (drawn(4096) + 0.1).float(), (drawn(4096) - 0.21).float()
    )


@pytest.mark.parametrize(
    ("shape", "dtype", "factor"),
    [
        ((4096,), torch.float32, 2.0),
        ((999,), torch.float32, 3.0),
        ((1024,), torch.bfloat16, 3.0),
        ((64, 32, 1, 1), torch.float32, 3.0),
        ((64, 32, 3, 3), torch.float32, 2.0),
    ],
)
def test_the_published_multipliers(shape: tuple[int, ...], dtype: torch.dtype, factor: float) -> None:
    assert multiplier(torch.zeros(shape, dtype=dtype), 1e-3) == factor
    assert multiplier(torch.zeros(shape, dtype=dtype), 2e-2) == 3.0


def test_without_fp64_the_direction_is_compared_and_form_and_nan_always() -> None:
    eager = drawn(4096).float()
    assert not why(None, eager, eager * 1.5)
    assert why(None, eager, eager + 0.2 * drawn(4096, 1).float()).startswith("cosine")
    assert why(eager.double(), eager, eager.double()).startswith("dtype")
    lost = eager.clone()
    lost[7] = math.nan
    assert why(eager.double(), eager, lost) == "1 values are not finite where eager's are"
    assert why(None, torch.arange(5), torch.arange(5).flip(0)) == "values differ"


@pytest.mark.parametrize(("factor", "status"), [(1.01, Status.PASS), (1.5, Status.FAIL_ACCURACY)])
def test_in_a_session_the_first_and_third_call_are_judged_by_it(factor: float, status: Status) -> None:
    compilers = {"planted": wrong_by(factor, "addmm")}
    session = opened(lambda: workload("mlp"), compilers=compilers, parity="field")
    found, judged, *_ = session.prepare("planted")
    parity = known(judged)
    assert found is status
    assert (parity.rule, parity.tolerance, parity.steps, parity.other_data) == ("field", 1e-2, 0, ())
    assert bool(known(parity.worst).failure) is (status is Status.FAIL_ACCURACY)


def test_two_runs_of_eager_must_have_the_same_bits() -> None:
    calls = itertools.count()  # every call differs; random numbers would repeat by chance

    def unsteady() -> Workload:
        module = Of(lambda x, line: line(x) * (1.0 + 1e-6 * next(calls)), nn.Linear(32, 8))
        return replace(workload("mlp"), module=module)

    for parity, status in (("field", Status.EAGER_TWO_RUNS_DIFFER), ("noise", Status.PASS)):
        session = opened(unsteady, compilers={"planted": with_fault(right)}, parity=parity)
        assert session.prepare("planted")[0] is status
