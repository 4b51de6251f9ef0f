"""A rounding that crosses a kink is no fault; a fault beside a kink is one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from harness.backends import load_backend
from harness.parity import compare
from harness.reference import Reference
from harness.schema import Mode, Parity
from harness.sensitivity import RUNS, shaken_references
from harness.workload import Workload
from tests.worker.planted import Backend, Trial, results, trial, wrong_by

ROWS = 256


class AtTheKink(nn.Module):
    """Its first unit is zero for the first row, up to a rounding: whether ReLU lets it pass is chance."""

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()
        self.lower = nn.Linear(32, 16)
        self.upper = nn.Linear(16, 4)
        self.backwards = False
        with torch.no_grad():
            self.lower.bias[0] -= self.lower(x)[0, 0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.lower.weight
        if self.backwards:  # the same sum in another order
            x, weight = x.flip(-1), weight.flip(-1)
        hidden = nn.functional.relu(nn.functional.linear(x, weight, self.lower.bias))
        return nn.functional.linear(hidden, self.upper.weight, self.upper.bias)


def at_the_kink(seed: int) -> Trial:
    torch.manual_seed(seed)
    x, target = torch.randn(ROWS, 32), torch.randint(0, 4, (ROWS,))
    module = AtTheKink(x)
    work = Workload(module=module, args=(x,), target=target, loss=nn.functional.cross_entropy)
    return Trial(workload=work, dtype="float32", mode=Mode.TRAINING)


def shaken(subject: Trial, reference: Reference) -> tuple[Reference, ...]:
    return shaken_references(reference, subject.variant, results)


def judge(
    subject: Trial, backend: Backend | None = None, *, backwards: bool = False
) -> tuple[Parity, Parity]:
    """The verdicts without and with shaken weights."""
    reference = subject.reference()
    variant = subject.variant()
    if backwards:
        module = variant.program.module
        assert isinstance(module, AtTheKink)
        module.backwards = True
    if backend is not None:
        variant.use(backend(variant.program).forward)
    found = results(variant)
    return compare(reference, found), compare(reference, found, lambda: shaken(subject, reference))


def test_another_order_of_a_sum_at_a_kink_is_no_fault() -> None:
    fails = passes = 0
    for seed in range(60):
        plain, with_shaken = judge(at_the_kink(seed), backwards=True)
        fails += plain.failed > 0
        passes += plain.failed > 0 and with_shaken.failed == 0
        if plain.failed and not with_shaken.failed:
            assert with_shaken.sensitive_tensors
            assert set(with_shaken.sensitive_tensors) <= {"gradient.lower.weight", "gradient.lower.bias"}
    assert fails >= 5  # else there is nothing to tell
    assert passes >= 0.9 * fails


@pytest.mark.parametrize("factor", [0.0, 0.99, 1.01])
def test_a_fault_beside_a_kink_is_one(factor: float) -> None:
    for seed in range(5):
        backend = wrong_by(factor, "addmm") if factor else wrong_by(factor, "mm", backward=True)
        plain, with_shaken = judge(at_the_kink(seed), backend)
        assert plain.failed > 0
        assert with_shaken.failed > 0


@pytest.mark.parametrize("name", ["mlp", "conv", "tokens"])
@pytest.mark.parametrize("backward", [False, True])
def test_one_operation_off_by_a_hundredth_fails_beside_shaken_weights_too(name: str, backward: bool) -> None:
    part = {"mlp": "mm", "conv": "convolution", "tokens": "mm"}[name]
    subject = trial(name)
    plain, with_shaken = judge(subject, wrong_by(1.01, part, backward=backward))
    assert plain.failed > 0
    assert with_shaken.failed > 0


def test_where_it_would_say_nothing_nothing_is_run() -> None:
    assert len(shaken(trial("mlp"), trial("mlp").reference())) == RUNS
    reduced = trial("mlp", "bfloat16")
    assert shaken(reduced, reduced.reference()) == ()


def test_weights_are_left_as_they_were() -> None:
    subject = trial("mlp")
    before = {k: v.clone() for k, v in subject.workload.module.state_dict().items()}
    assert judge(subject, load_backend("aot_eager"))[1].failed == 0
    assert all(torch.equal(v, before[k]) for k, v in subject.workload.module.state_dict().items())
