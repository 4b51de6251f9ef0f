"""Where eager's own results allow no judgment, the status says so."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness.program import Program
from harness.schema import Mode, Status
from harness.timing.workbench import Workbench
from harness.workload import Workload
from tests.factories import sampled
from tests.worker.planted import Forward, Of, Verdict, changing, judged, right, unopened, with_fault
from tests.worker.planted import workload as small


@pytest.mark.parametrize(("dtype", "scaled"), sampled(3, ("float16", "amp_float16"), (True, False)))
def test_small_gradients_of_float16_are_judged_at_a_scale(
    monkeypatch: pytest.MonkeyPatch, dtype: str, *, scaled: bool
) -> None:
    """Those of the outputs are 6e-9 here, below the smallest number of float16. Unscaled, zeros pass."""
    if not scaled:
        monkeypatch.setattr(Workbench, "scale_loss", lambda _: None)

    def build() -> Workload:
        loss = lambda out, _: 1e-5 * out.float().square().mean()  # noqa: E731 - a loss
        return Workload(module=nn.Linear(32, 32), args=(torch.randn(64, 32),), loss=loss)

    def zeros(_: Program, forward: Forward) -> Forward:
        def run(*given: Any) -> tuple[Any, Any]:
            loss, output = forward(*given)
            return loss * 0 + loss.detach(), output

        return run

    compilers = {"same": with_fault(right), "zeros": with_fault(zeros)}
    ready = unopened(build, dtype=dtype, compilers=compilers, performance=False)
    _, environment = ready.open()
    statuses = {name: ready.prepare(name)[0] for name in compilers}
    assert environment["loss_scale"] == (2.0**12 if scaled else 1.0)
    assert (statuses["zeros"] is Status.FAIL_ACCURACY) is scaled
    assert statuses["same"] is Status.PASS or not scaled


def with_output(
    change: Callable[[torch.Tensor], Any], factor: float = 1.0, dtype: str = "float32"
) -> Verdict:
    """Of a product, of which ``change`` makes the outputs. The candidate's first is wrong by ``factor``."""

    def wrong(output: Any) -> Any:
        first, *rest = output if isinstance(output, tuple) else (output,)
        return (first * factor, *rest) if rest else first * factor

    def build() -> Workload:
        module = Of(lambda x, line: change(line(x)), nn.Linear(32, 32))
        return Workload(module=module, args=(torch.randn(64, 32),))

    return judged(with_fault(changing(wrong)), build, Mode.INFERENCE, dtype)


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
