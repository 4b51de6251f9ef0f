"""What a card does to parity, emulated, and what a step should be bound by (``tests.gpu.predicted``)."""

from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import nn

from harness.parity.check import FINE
from harness.schema import Mode, Status
from harness.workload import Workload
from tests.factories import known
from tests.gpu import predicted
from tests.worker import emulated
from tests.worker.planted import Of, case_of, opened, right, with_fault, workload


@pytest.mark.parametrize(
    ("words", "same"), [("tf32", False), ("truncated", False), ("unsteady", False), ("", True)]
)
def test_an_emulation_changes_roundings_alone(words: str, *, same: bool) -> None:
    left, right = torch.randn(2, 64, 64).unbind()
    exact = left.double() @ right.double()
    products = [left @ right]
    for mode in emulated.modes(words, torch.Generator().manual_seed(1)):
        with mode:
            products.append(left @ right)
    assert torch.equal(products[0], products[-1]) is same
    assert (products[-1] - exact).abs().max() < 0.05


def test_sums_come_in_another_order_each_time_and_mean_the_same() -> None:
    gradient, places = torch.randn(4, 50, 8), torch.randint(0, 3, (4, 50))
    image, kernel = torch.randn(4, 6, 9, 9, requires_grad=True), torch.randn(6, 6, 3, 3, requires_grad=True)
    calls = (
        lambda: torch.ops.aten.embedding_dense_backward(gradient, places, 3, -1, False),
        lambda: torch.zeros(3, 8).index_add(0, places.flatten(), gradient.flatten(0, 1)),
        lambda: torch.zeros(3, 8).index_put((places,), gradient, accumulate=True),
        lambda: torch.autograd.grad(torch.conv2d(image, kernel).square().sum(), (kernel,))[0],
        lambda: gradient.sum((0, 1)),
    )
    mode = emulated.Unsteady(torch.Generator().manual_seed(1))
    for call in calls:
        plain = call()
        with mode:
            runs = [call() for _ in range(4)]
        assert not all(torch.equal(run, runs[0]) for run in runs)
        assert all(torch.allclose(run, plain, rtol=1e-3, atol=1e-3) for run in runs)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "dtype"), [("unsteady", "bfloat16"), ("tf32", "tf32")])
def test_right_candidates_are_judged_and_pass(words: str, dtype: str) -> None:
    case = case_of("tiny_gpt", "MLP_addition", Mode.TRAINING)
    verdicts = {o.candidate: o for o in emulated.outcomes(words, "tiny_gpt", case, dtype)}
    assert {name: o.status for name, o in verdicts.items() if name != "truncated"} == {
        name: "pass" for name in emulated.RIGHT[words] if name != "truncated"
    }
    assert not any(o.changed for o in verdicts.values())
    assert (verdicts[emulated.RIGHT[words][0]].spread > 0.0) is (words == "unsteady")


@pytest.mark.parametrize(
    ("also_fp64", "status"), [(False, Status.PASS), (True, Status.EAGER_TWO_RUNS_DIFFER)]
)
def test_eagers_runs_may_differ_more_where_those_of_fp64_do_not(*, also_fp64: bool, status: Status) -> None:
    """Then it is roundings that differ: a card adds in any order."""
    generator = torch.Generator().manual_seed(0)

    def forward(x: torch.Tensor, line: nn.Module) -> torch.Tensor:
        loud = 0.02 * (also_fp64 or x.dtype is not torch.float64)
        return cast("torch.Tensor", line(x) * (1.0 + loud * torch.randn(x.shape[0], 8, generator=generator)))

    def unsteady() -> Workload:
        return replace(workload("mlp"), module=Of(forward, nn.Linear(32, 8)))

    session = opened(unsteady, Mode.INFERENCE, compilers={"planted": with_fault(right)})
    outcome, parity, *_ = session.prepare("planted")
    assert known(parity).eager_spread > FINE
    assert outcome is status


def test_a_row_of_the_prediction() -> None:
    row = predicted.predicted(case_of("tiny_gpt", "MLP_addition", Mode.TRAINING, "full"), "bfloat16")
    assert (row["bound"], row["batch"], row["fits_gb"]) == ("launch", 2048, 24)
    assert float(row["tflop"]) == pytest.approx(3 * 2 * 2048 * 14_336 / 1e12, rel=0.2)
    assert set(row) <= set(predicted.COLUMNS)
