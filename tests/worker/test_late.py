"""What turns wrong between the check and the end of the rounds is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness.parity import drift as late
from harness.parity.drift import MOST, DriftCheck
from harness.schema import BASELINE, Case, Job, Mode, Protocol, Status
from harness.worker.session import Session
from harness.workload import Workload
from tests.worker.planted import noisy, refer, silent, workload


def session(build: Callable[[], Any], mode: Mode = Mode.TRAINING, dtype: str = "float32") -> Session:
    case = Case(suite="none", name="m", mode=mode, batch_size=4, published_batch_size=4)
    protocol = Protocol(min_sample_s=0.0, threads=1, repeat=3)
    job = Job(case=case, device="cpu", dtype=dtype, candidates=("eager",), protocol=protocol)
    found = Session(job, silent, lambda _: build())
    found.open()
    status, *_ = found.prepare("eager")
    assert status is Status.PASS
    return found


def go_on(found: Session) -> None:
    found.warm_up()
    found.measure(3)


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.INFERENCE])
@pytest.mark.parametrize("dtype", ["float32", "amp_bfloat16"])
@pytest.mark.parametrize("name", ["tokens", "conv", "mlp"])
def test_what_stays_as_it_was_is_not_reported(name: str, dtype: str, mode: Mode) -> None:
    found = session(lambda: workload(name), mode, dtype)
    go_on(found)
    assert found.finish()[0] == {}


@pytest.mark.parametrize(("factor", "wrong"), [(1.0, False), (1.1, True), (float("nan"), True)])
def test_a_candidate_that_turned_wrong_is(factor: float, *, wrong: bool) -> None:
    found = session(lambda: workload("mlp"))
    variant = found._variants["eager"]
    right = variant.program.forward()
    go_on(found)

    def forward(*given: Any) -> Any:
        loss, output = right(*given)
        return loss * factor, output

    variant.use(forward)
    changed = found.finish()[0]
    assert set(changed) == ({"eager"} if wrong else set())
    for error in changed.values():
        assert (error.failure or "").startswith("after the timed rounds it differs from before by RMS")
        assert not error.candidate_rmse <= error.allowed


def test_a_candidate_that_fails_now_has_failed() -> None:
    found = session(lambda: workload("mlp"))

    def forward(*given: Any) -> Any:
        raise ValueError("late")

    found._variants["eager"].use(forward)
    changed, _, failed = found.finish()
    assert changed == {}
    assert {name: (error.phase, error.message) for name, error in failed.items()} == {
        "eager": ("finish", "late")
    }


class Drifts(nn.Module):
    """Other values from its 12th step on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        found: torch.Tensor = self.linear(x) * (2.0 if self.steps >= 12 else 1.0)
        return found


def test_where_eager_drifts_it_alone_is_named() -> None:
    def build() -> Workload:
        return Workload(module=Drifts(), args=(torch.randn(4, 8),), loss=lambda output, _: output.mean())

    found = session(build)
    for _ in range(6):
        found.warm_up()
    assert set(found.finish()[0]) == {BASELINE}


def test_nan_that_stays_nan_is_no_change() -> None:
    broken = noisy(64)
    broken[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")], dtype=broken.dtype)
    check = DriftCheck()
    variant: Any = object()
    for values in (broken, torch.full_like(broken, float("nan"))):
        check.remember(variant, {"output": values}, {}, refer(None, {"output": values}))
        assert check.changed(variant, {"output": values.clone()}) is None
        assert check.changed(variant, {"output": noisy(64)}) is not None


def test_what_is_kept_is_not_the_tensor_itself() -> None:
    check, values = DriftCheck(), noisy(64)
    variant: Any = object()
    check.remember(variant, {"output": values}, {}, refer(None, {"output": values}))
    values += 1.0  # a model may write its next output there
    assert check.changed(variant, {"output": values}) is not None


def test_of_large_tensors_a_sample_is_kept_that_no_pattern_escapes() -> None:
    check = DriftCheck()
    large = noisy((256, 256))
    reference = refer(None, {"output": large})
    variant: Any = object()
    check.remember(variant, {"output": large}, {}, reference)
    (kept,) = check._kept[variant].values()
    assert kept.sample.numel() == MOST
    column = large.clone()
    column[:, 3::16] += 1.0  # a sixteenth of it, always the same place in a row
    assert check.changed(variant, {"output": large}) is None
    for other in ({"output": column}, {"output": large.float()}, {}):
        assert check.changed(variant, other) is not None


def test_a_mask_is_compared_too() -> None:
    """Booleans cannot be subtracted from each other."""
    mask = torch.ones(8, dtype=torch.bool)
    kept = late._Kept(shape=mask.shape, dtype=mask.dtype, sample=mask, allowed=0.0)
    assert late._compare("buffer.mask", kept, mask.clone()).failure is None
    assert late._compare("buffer.mask", kept, ~mask).failure is not None
