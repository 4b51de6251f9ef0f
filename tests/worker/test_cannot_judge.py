"""Where eager's own results allow no judgment, the status says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness.parity.checks import why_not_judged
from harness.parity.rule import compare, is_doubtful
from harness.parity.steps import Row, expect
from harness.program import Program
from harness.schema import Mode, Status
from harness.workload import Workload
from tests.worker.planted import Tensors, noisy, refer, rule
from tests.worker.planted import workload as small
from tests.worker.test_other_data import Forward, judged, right, with_fault


def why(exact: Tensors, eager: Tensors, dtype: str = "float32") -> str:
    reference = refer(exact, eager, by=rule(dtype=dtype))
    return why_not_judged(reference, compare(reference, eager))


def plain(count: int = 10) -> Tensors:
    names = ["output", "loss", *(f"gradient.{n}" for n in range(count - 2))]
    return {name: noisy(2000, place) for place, name in enumerate(names)}


def test_what_eager_computes_well_can_be_judged() -> None:
    exact = plain()
    assert why(exact, {name: tensor.float() for name, tensor in exact.items()}) == ""


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_tensor_without_a_finite_value_cannot(value: float) -> None:
    exact = plain()
    exact["gradient.3"] = torch.full((2000,), value, dtype=torch.float64)
    eager = {name: tensor.float() for name, tensor in exact.items()}
    assert why(exact, eager) == "eager's gradient.3 overflowed, or held NaN or infinities only"


def test_an_overflow_of_eager_alone_cannot() -> None:
    exact = plain()
    exact["gradient.3"][5] = 1e6
    eager = {name: tensor.half() for name, tensor in exact.items()}
    assert why(exact, eager, "float16").startswith("eager's gradient.3 overflowed")


def test_infinities_that_are_meant_can() -> None:
    exact = plain()
    exact["output"][:100] = -math.inf
    assert why(exact, {name: tensor.float() for name, tensor in exact.items()}) == ""


def noise(exact: Tensors, *names: str) -> Tensors:
    """Eager, with nothing but rounding errors in these tensors."""
    eager = {name: tensor.float() for name, tensor in exact.items()}
    return eager | {name: noisy(exact[name].numel(), 77).float() for name in names}


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (("gradient.1", "gradient.2"), ""),
        (("gradient.1", "gradient.2", "gradient.3"), "3 of 10 tensors are rounding noise: zeros would pass"),
        (("loss",), "eager's loss is rounding noise: zero would pass"),
    ],
)
def test_a_fifth_of_the_tensors_may_be_noise_but_not_the_loss(names: tuple[str, ...], sentence: str) -> None:
    exact = plain()
    assert why(exact, noise(exact, *names)) == sentence


def test_many_small_tensors_may_be_noise() -> None:
    """A normalization's gradients are sums of many roundings, and few values."""
    exact = plain()
    small = {f"gradient.norm.{number}": 1e-3 * torch.ones(4).double() for number in range(10)}
    assert why(exact | small, noise(exact | small, *small)) == ""


class Broken(nn.Module):
    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.change = change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.change(self.linear(x))


def test_a_model_that_computes_nan_everywhere_is_no_pass() -> None:
    def build() -> Workload:
        return Workload(module=Broken(lambda x: x * math.nan), args=(torch.randn(64, 32),))

    status, found, _ = judged(with_fault(right), build, Mode.INFERENCE)
    assert status is Status.CANNOT_JUDGE
    assert found.unjudged == "eager's output overflowed, or held NaN or infinities only"
    assert found.failed == 0


def test_a_loss_that_cancels_wholly_is_no_pass() -> None:
    status, found, _ = judged(with_fault(right), lambda: small("norm_mean"))
    assert status is Status.CANNOT_JUDGE
    assert found.unjudged == "eager's loss is rounding noise: zero would pass"
    assert not status.passed
    assert status.counted


@pytest.mark.parametrize(
    ("off", "doubtful"), [(1.0002, True), (1.01, False), (math.nan, False), (0.0, False)]
)
def test_a_failure_is_doubtful_if_no_tensor_is_far_beyond_its_limit(off: float, *, doubtful: bool) -> None:
    exact = {"output": noisy(2000, 1)}
    eager = {"output": exact["output"].float()}
    found = compare(refer(exact, eager), {"output": eager["output"] * off})
    assert found.failed
    assert is_doubtful(found) == doubtful


class MostlyNoise(nn.Module):
    """Nine of ten outputs are differences of equal numbers: nothing but roundings."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = self.linear(x)
        rest = [(made * 3 + k) - (made + made + made) - k for k in range(1, 10)]
        return (made, *rest)


def first_off(factor: float) -> Callable[[Program, Forward], Forward]:
    def fault(_: Program, forward: Forward) -> Forward:
        def wrong(*given: Any) -> tuple[Any, Any]:
            loss, (made, *rest) = forward(*given)
            return loss, (made * factor, *rest)

        return wrong

    return fault


@pytest.mark.parametrize(
    ("factor", "status"),
    [
        (1.0, Status.CANNOT_JUDGE),
        (1.0002, Status.CANNOT_JUDGE),
        (1.01, Status.FAIL_ACCURACY),
        (math.nan, Status.FAIL_ACCURACY),
    ],
)
def test_where_most_is_noise_a_failure_must_be_clear(factor: float, status: Status) -> None:
    def build() -> Workload:
        return Workload(module=MostlyNoise(), args=(torch.randn(64, 32),))

    assert judged(with_fault(first_off(factor)), build, Mode.INFERENCE)[0] is status


def test_other_data_on_which_eager_is_noise_is_not_judged() -> None:
    here, there = noisy(2000, 1), noisy(2000, 2)
    eager = Row(
        results={1: {"output": here.float()}, 4: {"output": noisy(2000, 3).float()}}, changed=("inputs",)
    )
    exact = Row(results={1: {"output": here}, 4: {"output": there}})
    by = rule()
    full = refer({"output": here}, {"output": here.float()}, by=by)
    expected = expect(by, eager, exact, full, "")
    assert set(expected.references) == {1}
    assert expected.why_not == "eager's outputs are rounding noise there"
