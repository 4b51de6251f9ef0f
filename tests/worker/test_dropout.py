"""Dropout at its real rate: the statistical tests, their rate of false alarms, and planted faults."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from harness.backends import load_backend
from harness.parity.parts.dropout import can_test, rates_of, wrong_dropout
from harness.program import Compiled, Program
from harness.schema import Case, Job, Mode, Protocol, Status
from harness.worker.session import Session
from harness.workload import Workload
from tests.worker.planted import Backend, silent

SIZE = (256, 256)
Step = Callable[[], tuple[torch.Tensor, torch.Tensor]]


def step_of(mask: Callable[[], torch.Tensor], scale: float, backward: float = 1.0) -> Step:
    def step() -> tuple[torch.Tensor, torch.Tensor]:
        output = mask().float() * scale
        return output, output * backward

    return step


def random_mask(keep: float) -> torch.Tensor:
    return torch.rand(SIZE) < keep


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 0.9])
def test_right_masks_pass_always(rate: float) -> None:
    """At a level of one in a million, fifty right probes give no alarm."""
    torch.manual_seed(0)
    found = [wrong_dropout(rate, step_of(lambda: random_mask(1 - rate), 1 / (1 - rate))) for _ in range(50)]
    assert found == [""] * 50


def test_the_false_alarm_rate_is_the_one_that_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the level raised to a tenth, about a tenth of right probes is called wrong."""
    monkeypatch.setattr("harness.parity.parts.dropout.LEVEL", 0.1)
    torch.manual_seed(1)
    probes = 300
    wrong = sum(bool(wrong_dropout(0.3, step_of(lambda: random_mask(0.7), 1 / 0.7))) for _ in range(probes))
    assert 0.04 * probes < wrong < 0.16 * probes  # 30 +- 3.5 standard deviations


def test_a_wrong_rate_is_found_with_the_power_that_is_stated() -> None:
    torch.manual_seed(2)
    found = [wrong_dropout(0.1, step_of(lambda: random_mask(0.894), 1 / 0.9)) for _ in range(20)]
    assert all("of the elements are dropped instead of 10.000%" in one for one in found)
    near = [wrong_dropout(0.1, step_of(lambda: random_mask(0.8999), 1 / 0.9)) for _ in range(20)]
    assert near == [""] * 20  # a tenth of a permille is not


def test_a_missing_or_wrong_scale_is_found() -> None:
    torch.manual_seed(3)
    assert wrong_dropout(0.1, step_of(lambda: random_mask(0.9), 1.0)).startswith(
        "kept values are multiplied by 1 instead of 1.111"
    )
    assert wrong_dropout(0.1, step_of(lambda: random_mask(0.9), 1 / 0.9, backward=0.9)).startswith(
        "the backward"
    )


def test_the_same_mask_in_each_step_is_found_and_one_that_repeats_inside_too() -> None:
    torch.manual_seed(4)
    kept = random_mask(0.9)
    assert wrong_dropout(0.1, step_of(lambda: kept, 1 / 0.9)) == (
        "the masks of two steps in a row depend on each other"
    )

    def halves() -> torch.Tensor:
        return torch.cat([random_mask(0.9)[:128]] * 2)

    assert (
        wrong_dropout(0.1, step_of(halves, 1 / 0.9))
        == "the masks of two halves of a tensor depend on each other"
    )


def test_which_rates_can_be_tested() -> None:
    assert not can_test(0.0)
    assert not can_test(1e-30)
    assert not can_test(1.0)
    module = nn.Sequential(nn.Dropout(0.2), nn.Dropout(0.1), nn.Dropout(0.2), nn.Dropout(1e-30))
    assert rates_of(module) == (0.1, 0.2)
    assert rates_of(module.eval()) == ()


# -- through a session ------------------------------------------------------------------------


def prepared(backend: Backend, dtype: str = "float32") -> tuple[Status, str, tuple[str, ...]]:
    case = Case(suite="none", name="m", mode=Mode.TRAINING, batch_size=64, published_batch_size=64)
    protocol = Protocol(threads=1, keep_dropout=True)
    job = Job(case=case, device="cpu", dtype=dtype, candidates=("planted",), protocol=protocol)

    def build(_: Case) -> Workload:
        module = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.25), nn.Linear(32, 4))
        args, target = (torch.randn(64, 8),), torch.randint(0, 4, (64,))
        return Workload(module=module, args=args, target=target, loss=nn.functional.cross_entropy)

    session = Session(job, silent, build, {"planted": backend})
    session.open()
    status, found, _, notes = session.prepare("planted")
    assert found is not None
    assert found.worst is not None
    return status, found.worst.failure or "", notes


def with_dropout(change: Callable[[torch.Tensor], torch.Tensor]) -> Backend:
    """Eager, whose dropout is another function of its input."""

    def compile(program: Program) -> Compiled:  # noqa: A001 - as the real ones are called
        module = program.module
        for part in module.modules():
            if isinstance(part, nn.Dropout):
                part.forward = change  # type: ignore[method-assign,assignment]
        forward = program.forward()
        return Compiled(forward=forward, region="forward", compiler_calls=lambda: 1)

    return compile


def test_faults_of_a_compilers_dropout_fail_the_candidate() -> None:
    status, why, _ = prepared(with_dropout(lambda x: nn.functional.dropout(x, 0.2)))
    assert (status, why.startswith("kept values are multiplied by 1.25 instead of 1.333")) == (
        Status.FAIL_ACCURACY,
        True,
    )
    status, why, _ = prepared(with_dropout(lambda x: x * (torch.rand_like(x) < 0.76) / 0.75))
    assert (status, why.endswith("instead of 25.000%")) == (Status.FAIL_ACCURACY, True)

    def same_each_step(x: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(5)
        return x * (torch.rand(x.shape, generator=generator) < 0.75).to(x.dtype) / 0.75

    status, why, _ = prepared(with_dropout(same_each_step))
    assert (status, why) == (Status.FAIL_ACCURACY, "the masks of two steps in a row depend on each other")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_right_compilers_are_not_accused(dtype: str) -> None:
    for name in ("aot_eager", "inductor"):
        status, why, notes = prepared(load_backend(name, ""), dtype)
        assert status in (Status.PASS, Status.CANNOT_JUDGE), why
        assert "dropout 0.25: scale, rate and independence of the masks are right in a probe" in notes
