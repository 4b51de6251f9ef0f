"""What is right and rounds differently passes; what is wrong beside a kink does not."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.controls import CONTROLS
from harness.backends import load_backend
from harness.parity.calls import first_calls
from harness.parity.check import Check
from harness.program import Compiled, Program
from harness.schema import Mode, Status
from harness.workload import Workload
from tests.worker.planted import Forward, Verdict, judged, opened, right_graph, with_fault, workload

KINKED = ("conv", "mlp")  # ReLU and max pool; biases before normalizations, whose gradients cancel


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # torch says it where oneDNN is switched off
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", KINKED)
def test_other_layouts_kernels_and_threads_pass(name: str, dtype: str) -> None:
    session = opened(lambda: workload(name), dtype=dtype)
    checks = session._checks
    assert checks is not None
    judged_ones = 0
    for change, surroundings in CONTROLS.values():
        variant = session._bench.variant()
        if not change(variant):
            continue
        variant.remember()
        with surroundings():
            forward = variant.program.forward()
            check = Check(checks, variant, Compiled(forward=forward, region="none", compiler_calls=lambda: 1))
            check.run(first_calls(session._bench, variant, []))
        status, parity, _ = check.verdict()
        assert status is Status.PASS, parity.worst
        judged_ones += 1
    assert judged_ones == len(CONTROLS) - 1  # one is for images, one for what is none


@pytest.mark.parametrize("compiler", ["torchscript", "aot_eager"])
@pytest.mark.parametrize("name", ["conv", "attention"])
def test_compilers_without_a_fault_pass(name: str, compiler: str) -> None:
    status, parity, _ = judged(load_backend(compiler), lambda: workload(name))
    assert status is Status.PASS, parity.worst


class AtTheKink(nn.Module):
    """Its first unit is zero for the first row, up to a rounding: whether ReLU lets it pass is chance."""

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()
        self.lower, self.upper = nn.Linear(32, 16), nn.Linear(16, 4)
        self.backwards = False
        with torch.no_grad():
            self.lower.bias[0] -= self.lower(x)[0, 0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.lower.weight
        if self.backwards:  # another order of the same sums
            x, weight = x.flip(-1), weight.flip(-1)
        hidden = nn.functional.relu(nn.functional.linear(x, weight, self.lower.bias))
        made: torch.Tensor = self.upper(hidden)
        return made


def at_the_kink(seed: int) -> Workload:
    torch.manual_seed(seed)
    x, target = torch.randn(64, 32), torch.randint(0, 4, (64,))
    return Workload(module=AtTheKink(x), args=(x,), target=target, loss=nn.functional.cross_entropy)


def backwards(program: Program, forward: Forward) -> Forward:
    assert isinstance(program.module, AtTheKink)
    program.module.backwards = True
    return forward


def wrong_gradient(program: Program, forward: Forward) -> Forward:
    """A percent, in a tensor behind the kink, besides the other order."""
    assert isinstance(program.module, AtTheKink)
    weight: Any = program.module.lower.weight  # torch's register_hook has no types
    weight.register_hook(lambda gradient: gradient * 1.01)
    return backwards(program, forward)


def test_another_order_of_a_sum_at_a_kink_is_sensitive_and_no_fault() -> None:
    def verdict(seed: int) -> Verdict:
        return judged(with_fault(backwards), partial(at_the_kink, seed))

    parities = {seed: (status, parity) for seed in range(16) for status, parity, _ in (verdict(seed),)}
    assert all(status is Status.PASS for status, _ in parities.values()), parities
    sensitive = [parity.sensitive_tensors for _, parity in parities.values() if parity.sensitive_tensors]
    assert all(set(names) <= {"gradient.lower.weight", "gradient.lower.bias"} for names in sensitive)
    assert sensitive  # else there was nothing to tell


def test_a_fault_next_to_a_kink_is_one() -> None:
    for seed in range(4):
        status, parity, _ = judged(with_fault(wrong_gradient), partial(at_the_kink, seed))
        assert status is Status.FAIL_ACCURACY
        assert parity.worst is not None
        words = str(parity.worst.failure)
        assert parity.worst.name.startswith("gradient.lower")
        assert "noisy eager: " in words
        assert words.endswith("eager is nearer to fp64")


def test_a_pass_says_how_fine_it_is() -> None:
    status, parity, _ = judged(right_graph, lambda: workload("tokens"), Mode.INFERENCE)
    assert status is Status.PASS
    assert (parity.rule, parity.steps, parity.fine, parity.failed) == ("noise", 6, 1.0, 0)
    assert parity.resolution_outputs == parity.resolution_largest == 1e-4
    assert parity.resolution_gradients is None
    assert parity.used is not None
    assert parity.used <= 1.0
    assert parity.worst is not None
    assert None not in (parity.worst.noisy_rmse, parity.worst.eager_rmse, parity.worst.candidate_rmse)
