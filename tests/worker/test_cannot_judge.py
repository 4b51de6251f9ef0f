"""Where eager's own results allow no judgment, the status says so."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness.program import Compiled, Program
from harness.schema import Mode, Protocol, Status
from harness.timing.workbench import Workbench
from harness.worker.session import Session
from harness.workload import Workload
from tests.factories import make_job, sampled
from tests.worker.planted import Forward, Verdict, judged, right, silent, with_fault
from tests.worker.planted import workload as small


@pytest.mark.parametrize(("dtype", "scaled"), sampled(3, ("float16", "amp_float16"), (True, False)))
def test_small_gradients_of_float16_are_judged_at_a_scale(
    monkeypatch: pytest.MonkeyPatch, dtype: str, *, scaled: bool
) -> None:
    """Those of the outputs are 6e-9 here, below the smallest number of float16. Unscaled, zeros pass."""
    if not scaled:
        monkeypatch.setattr(Workbench, "scale_loss", lambda _: None)

    def build(_: object) -> Workload:
        torch.manual_seed(0)
        given = (torch.randn(64, 32),)
        return Workload(
            module=nn.Linear(32, 32), args=given, loss=lambda out, _: 1e-5 * out.float().square().mean()
        )

    def zeros(made: Program) -> Compiled:
        eager = made.forward()

        def forward(*given: Any) -> tuple[Any, Any]:
            loss, output = eager(*given)
            return loss * 0 + loss.detach(), output

        return Compiled(forward=forward, region="forward+loss", compiler_calls=lambda: 1)

    def same(made: Program) -> Compiled:
        return Compiled(forward=made.forward(), region="forward+loss", compiler_calls=lambda: 1)

    compilers = {"same": same, "zeros": zeros}
    asked = make_job(dtype=dtype, candidates=tuple(compilers), protocol=Protocol(performance=False))
    ready = Session(asked, silent, build, compilers)
    _, environment = ready.open()
    statuses = {name: ready.prepare(name)[0] for name in compilers}
    assert environment["loss_scale"] == (2.0**12 if scaled else 1.0)
    assert (statuses["zeros"] is Status.FAIL_ACCURACY) is scaled
    assert statuses["same"] is Status.PASS or not scaled


class Changed(nn.Module):
    """A product, and what ``change`` makes of it."""

    def __init__(self, change: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.change = change

    def forward(self, x: torch.Tensor) -> Any:
        return self.change(self.linear(x))


def with_output(
    change: Callable[[torch.Tensor], Any], factor: float = 1.0, dtype: str = "float32"
) -> Verdict:
    """Of a candidate whose first output is wrong by ``factor``."""

    def fault(_: Program, forward: Forward) -> Forward:
        def wrong(*given: Any) -> tuple[Any, Any]:
            loss, output = forward(*given)
            first, *rest = output if isinstance(output, tuple) else (output,)
            return loss, (first * factor, *rest) if rest else first * factor

        return wrong

    def build() -> Workload:
        return Workload(module=Changed(change), args=(torch.randn(64, 32),))

    return judged(with_fault(fault), build, Mode.INFERENCE, dtype)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_tensor_without_a_finite_value_is_no_pass(value: float) -> None:
    status, parity, _ = with_output(lambda x: (x, x * 0 + value))
    assert status is Status.CANNOT_JUDGE
    assert parity.unjudged == "eager's output.1 overflowed, or held NaN or infinities only"
    assert parity.failed == 0
    assert with_output(lambda x: (x, x * 0 + value), 1.1)[0] is Status.FAIL_ACCURACY


def test_an_overflow_of_eager_alone_is_no_pass_and_meant_infinities_are_one() -> None:
    status, parity, _ = with_output(lambda x: (x, x * 1e5), dtype="float16")
    assert status is Status.CANNOT_JUDGE
    assert parity.unjudged.startswith("eager's output.1 overflowed")
    masked = with_output(lambda x: x.masked_fill(torch.ones(32, 32).triu(1).bool()[:1], -math.inf))
    assert masked[0] is Status.PASS


def cancels(x: torch.Tensor) -> torch.Tensor:
    """Nothing but roundings."""
    return (x * 3 + 1) - (x + x + x) - 1


@pytest.mark.parametrize(
    ("noise", "factor", "status"),
    [
        (1, 1.0, Status.PASS),
        (4, 1.0, Status.CANNOT_JUDGE),
        (4, 1.01, Status.FAIL_ACCURACY),
        (4, math.nan, Status.FAIL_ACCURACY),
    ],
)
def test_a_fifth_of_the_values_may_be_noise_and_a_clear_error_fails_all_the_same(
    noise: int, factor: float, status: Status
) -> None:
    def outputs(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x, *(x * n for n in range(2, 8 - noise)), *(cancels(x + n) for n in range(noise)))

    found, parity, _ = with_output(outputs, factor)
    assert found is status
    assert len(parity.noise_tensors) == noise
    assert bool(parity.unjudged) is (noise > 1)
    if status is Status.CANNOT_JUDGE:
        assert parity.unjudged.startswith("4 of 7 outputs of eager change by a third or more")


def test_a_loss_that_cancels_wholly_is_no_pass() -> None:
    status, parity, _ = judged(with_fault(right), lambda: small("norm_mean"))
    assert status is Status.CANNOT_JUDGE
    assert parity.unjudged.startswith("eager's loss changes by more than its third")
    assert not status.passed
    assert status.counted


def test_an_approximate_candidate_is_judged_by_its_form_alone() -> None:
    for factor, status in ((1.05, Status.APPROXIMATE), (math.nan, Status.FAIL_ACCURACY)):

        def fault(_: Program, forward: Forward, factor: float = factor) -> Forward:
            return lambda *given: (None, forward(*given)[1] * factor)

        backend = with_fault(fault, approximate=True)
        assert judged(backend, lambda: small("mlp"), Mode.INFERENCE)[0] is status
