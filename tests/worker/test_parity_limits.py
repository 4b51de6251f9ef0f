"""What the scaled rule must not let pass, and what it must not mistake for an error."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from harness.backends import load_backend
from harness.parity.distance import BLOCK
from harness.parity.limits import CANCELLATION
from harness.parity.rule import compare
from harness.precision import precision
from harness.schema import Mode
from harness.workload import Workload
from tests.worker.planted import (
    MODELS,
    Tensors,
    Trial,
    failure,
    noisy,
    refer,
    results,
    rule,
    trial,
    with_tensor,
    wrong_by,
)

TRAINING, INFERENCE = Mode.TRAINING, Mode.INFERENCE


# -- the hole in the published rule, and others like it ----------------------------------------


def small_gradients() -> tuple[Tensors, Tensors, Tensors]:
    """fp64, eager, and a candidate whose compiler returns zeros for a gradient of the size of 1e-3."""
    exact = {"loss": torch.tensor(2.0, dtype=torch.float64), "gradient.w": 1e-3 * noisy((64, 64))}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    return exact, eager, with_tensor(eager, "gradient.w", torch.zeros(64, 64))


def test_zeros_for_small_gradients_fail_the_scaled_rule() -> None:
    exact, eager, zeros = small_gradients()
    found = compare(refer(exact, eager), zeros)
    assert found.failed == 1
    assert found.worst is not None
    assert found.worst.name == "gradient.w"
    assert "RMS error 0.000996 is above the limit 9.96e-07" in failure(found)


def test_zeros_for_small_gradients_pass_the_published_rule() -> None:
    exact, eager, zeros = small_gradients()
    found = compare(refer(exact, eager, by=rule("field")), zeros)
    assert found.failed == 0
    assert found.rule == "field"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "amp"])
def test_zeros_for_small_gradients_fail_beside_large_ones(dtype: str) -> None:
    exact = {"gradient.large": noisy((64, 64)), "gradient.small": 0.02 * noisy((64, 64), 1)}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    zeros = with_tensor(eager, "gradient.small", torch.zeros(64, 64))
    assert compare(refer(exact, eager, by=rule(dtype=dtype)), zeros).failed == 1


@pytest.mark.parametrize("mode", [INFERENCE, TRAINING])
def test_one_wrong_element_of_a_million_fails(mode: Mode) -> None:
    exact = noisy(10**6)
    eager = exact.float()
    given = eager.clone()
    given[123_456] = eager[123_456] + 1.0
    assert (
        compare(refer({"output": exact}, {"output": eager}, by=rule(mode=mode)), {"output": given}).failed
        == 1
    )


@pytest.mark.parametrize("large", [1e9, torch.finfo(torch.float32).max])
def test_masked_values_hide_no_errors(large: float) -> None:
    """Logits with a mask of huge numbers: their RMS is the mask's."""
    exact = noisy((64, 100))
    exact[:, 90:] = -large
    eager = exact.float()
    wrong = eager.clone()
    wrong[:, :90] *= 1.1
    reference = refer({"output": exact}, {"output": eager})
    assert compare(reference, {"output": eager}).failed == 0
    assert failure(compare(reference, {"output": wrong})).startswith("without outliers, RMS error")


def test_a_mask_that_is_another_number_in_fp64_is_no_error() -> None:
    exact = noisy((64, 100))
    eager = exact.float()
    exact[:, 90:] = torch.finfo(torch.float64).min
    eager[:, 90:] = torch.finfo(torch.float32).min
    reference = refer({"output": exact}, {"output": eager})
    assert reference.exact is not None
    assert compare(reference, {"output": eager.clone()}).failed == 0
    assert compare(reference, {"output": torch.where(eager < -1e9, eager, eager * 1.1)}).failed == 1
    assert compare(reference, {"output": torch.where(eager < -1e9, 0.0, eager)}).failed == 1


def test_a_small_part_of_a_tensor_is_judged_by_its_own_size() -> None:
    """A third of a fused weight has gradients a hundred times smaller, and the compiler loses them."""
    exact = noisy((3 * 64, 64))
    exact[:64] *= 0.005
    eager = exact.to(torch.bfloat16)
    given = eager.clone()
    given[:64] = 0
    reference = refer({"gradient.qkv": exact}, {"gradient.qkv": eager}, by=rule(dtype="bfloat16"))
    assert compare(reference, {"gradient.qkv": eager}).failed == 0
    assert failure(compare(reference, {"gradient.qkv": given})) == (
        f"{64 * 64 // BLOCK} of {3 * 64 * 64 // BLOCK} blocks of {BLOCK} elements are beyond their limit"
    )


def test_the_queries_gradient_of_a_fused_projection_cannot_be_lost() -> None:
    subject = trial("fused", "bfloat16")
    reference = subject.reference()
    right = results(subject.variant())
    wrong = right["gradient.qkv.weight"].clone()
    wrong[:32] = 0
    assert compare(reference, right).failed == 0
    assert compare(reference, with_tensor(right, "gradient.qkv.weight", wrong)).failed == 1


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "amp"])
def test_zeros_pass_on_the_noise_tensors_alone(name: str, dtype: str) -> None:
    subject = trial(name, dtype)
    reference, right = subject.reference(), results(subject.variant())
    noise = compare(reference, right).noise_tensors
    for tensor in (n for n, t in right.items() if bool(t.any())):
        zeros = with_tensor(right, tensor, torch.zeros_like(right[tensor]))
        assert (compare(reference, zeros).failed == 0) is (tensor in noise), tensor


# -- noise -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_keys_bias_is_noise_and_garbage_there_fails(dtype: str) -> None:
    subject = trial("attention", dtype)
    reference, right = subject.reference(), results(subject.variant())
    assert compare(reference, right).noise_tensors == ("gradient.key.bias",)
    bias = right["gradient.key.bias"]
    largest = max(
        float(t.float().square().mean().sqrt()) for n, t in right.items() if n.startswith("gradient")
    )
    size = 1e-3 if dtype == "float32" else 0.1 * largest
    garbage = with_tensor(right, "gradient.key.bias", (size * noisy(bias.numel())).to(bias.dtype))
    found = compare(reference, garbage)
    assert found.failed == 1
    assert found.worst is not None
    assert found.worst.name == "gradient.key.bias"


def test_a_bias_before_batch_normalization_is_noise() -> None:
    subject = trial("conv")
    reference, right = subject.reference(), results(subject.variant())
    found = compare(reference, right)
    assert found.noise_tensors == ("gradient.body.0.bias", "gradient.body.4.bias")
    # another order of summation: many times eager's error, and still nothing beside other gradients
    other = with_tensor(right, "gradient.body.4.bias", right["gradient.body.4.bias"] * 100)
    assert compare(reference, other).failed == 0


def test_a_loss_that_cancels_wholly_is_judged_by_the_size_of_the_output() -> None:
    subject = trial("norm_mean")
    reference, right = subject.reference(), results(subject.variant())
    assert "loss" in compare(reference, right).noise_tensors
    assert compare(reference, with_tensor(right, "loss", torch.tensor(1e-7))).failed == 0
    assert compare(reference, with_tensor(right, "loss", torch.tensor(1e-3))).failed == 1


@pytest.mark.parametrize(("times", "passes"), [(0.9, True), (1.1, False)])
def test_a_sum_that_nearly_cancels_may_be_a_few_times_further_off_than_eagers(
    times: float, *, passes: bool
) -> None:
    exact = {"gradient.w": noisy(4096), "gradient.b": 1e-6 * noisy(4096, 1)}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    eager["gradient.b"] = (exact["gradient.b"] * (1 + 1e-2)).float()
    given = (exact["gradient.b"] * (1 + times * CANCELLATION * 1e-2)).float()
    found = compare(refer(exact, eager), with_tensor(eager, "gradient.b", given))
    assert (found.failed == 0) is passes


@pytest.mark.parametrize("size", [24, 4096])
@pytest.mark.parametrize(("times", "passes"), [(0.9, True), (1.1, False)])
def test_where_a_sum_cancels_to_zero_eagers_error_is_the_only_measure(
    times: float, size: int, *, passes: bool
) -> None:
    """starnet_s1 in amp: a bias before a normalization, where the noise of Inductor is 7 times eager's."""
    exact = {"gradient.w": noisy(4096), "gradient.b": 1e-15 * noisy(size, 1)}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    eager["gradient.b"] = (0.01 * noisy(size, 2)).float()
    given = (times * CANCELLATION * 0.01 * noisy(size, 2)).float()
    found = compare(refer(exact, eager, by=rule(dtype="amp")), with_tensor(eager, "gradient.b", given))
    assert (found.failed == 0) is passes
    assert "gradient.b" in found.noise_tensors


@pytest.mark.parametrize(("share", "noise"), [(0.5, ()), (2.0, ("gradient.w",))])
def test_what_passes_at_perturbed_weights_only_because_zeros_would_is_noise(
    share: float, noise: tuple[str, ...]
) -> None:
    exact = {"gradient.w": noisy(4096)}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    wrong = with_tensor(eager, "gradient.w", eager["gradient.w"] * 1.3)
    error = compare(refer(exact, eager), wrong).worst
    assert error is not None
    over_runs = replace(error, failure=None, allowed=share * error.scale)
    found = compare(refer(exact, eager), wrong, excused={"gradient.w": over_runs})
    assert (found.failed, found.sensitive_tensors) == (0, ("gradient.w",))
    assert found.noise_tensors == noise


@pytest.mark.parametrize("size", [64, 4096])
def test_what_carries_digits_is_not_excused_by_large_neighbors(size: int) -> None:
    exact = {"gradient.w": 1000 * noisy(4096), "gradient.b": 1e-3 * noisy(size, 1)}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    wrong = with_tensor(eager, "gradient.b", eager["gradient.b"] * 1.01)
    assert compare(refer(exact, eager), wrong).failed == 1


def test_a_gradient_of_exact_zeros_is_not_listed_as_noise() -> None:
    exact = {"gradient.w": noisy(100), "gradient.dead": torch.zeros(100, dtype=torch.float64)}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    found = compare(refer(exact, eager), eager)
    assert found.noise_tensors == ()
    assert (
        compare(refer(exact, eager), with_tensor(eager, "gradient.dead", torch.full((100,), 1e-2))).failed
        == 1
    )


def test_one_number_that_eager_has_right_by_chance_sets_no_limit() -> None:
    """The loss is held to the error that eager's outputs have, not to its own lucky one."""
    exact = {"output": noisy(4096), "loss": torch.tensor(1.0, dtype=torch.float64)}
    eager = {"output": (exact["output"] * 1.02).bfloat16(), "loss": torch.tensor(1.0).bfloat16()}
    reference = refer(exact, eager, by=rule(dtype="bfloat16"))
    assert compare(reference, with_tensor(eager, "loss", torch.tensor(1.05).bfloat16())).failed == 0
    assert compare(reference, with_tensor(eager, "loss", torch.tensor(1.1).bfloat16())).failed == 1


@pytest.mark.parametrize("value", [1.0, 0.99, 2.0, 2.3125, 7.98, 1e-4])
def test_one_rounding_of_a_bfloat16_loss_passes(value: float) -> None:
    exact = {"loss": torch.tensor(value, dtype=torch.float64)}
    eager = {"loss": torch.tensor(value).bfloat16()}
    reference = refer(exact, eager, by=rule(dtype="bfloat16"))
    bits = eager["loss"].view(torch.int16)
    for steps, passes in ((1, True), (-1, True), (8, False), (-8, False)):
        other = (bits + steps).view(torch.bfloat16)
        assert (compare(reference, {"loss": other}).failed == 0) is passes, steps


# -- an eager that differs from itself ------------------------------------------------------------------


def unsteady(spread: float) -> tuple[Tensors, Tensors, Tensors]:
    """fp64 and two eager runs whose gradients differ by ``spread`` of their size."""
    exact = {"output": noisy(4096), "gradient.w": noisy(4096, 1)}
    first = {name: tensor.float() for name, tensor in exact.items()}
    return (
        exact,
        first,
        with_tensor(first, "gradient.w", (exact["gradient.w"] + spread * noisy(4096, 2)).float()),
    )


def test_the_spread_of_eager_widens_the_limit() -> None:
    exact, first, second = unsteady(5e-3)
    given = with_tensor(first, "gradient.w", (exact["gradient.w"] + 8e-3 * noisy(4096, 3)).float())
    steady = refer(exact, first)
    assert (steady.bit_equal, steady.relative_spread, steady.can_judge) == (True, 0.0, True)
    assert compare(steady, given).failed == 1
    shaky = refer(exact, first, second)
    assert not shaky.bit_equal
    assert shaky.can_judge
    assert shaky.relative_spread == pytest.approx(5e-3, rel=0.05)
    found = compare(shaky, given)
    assert found.failed == 0
    assert not found.eager_bit_equal
    assert found.eager_spread == shaky.relative_spread


def test_an_eager_that_differs_by_more_than_the_tolerance_cannot_judge() -> None:
    exact, first, second = unsteady(2e-2)
    assert not refer(exact, first, second).can_judge
    assert refer(exact, first, second, by=rule(dtype="bfloat16")).relative_spread > 1e-2
    exact, first, second = unsteady(2e-3)
    assert refer(exact, first, second, by=rule(mode=TRAINING)).can_judge
    assert not refer(exact, first, second, by=rule(mode=INFERENCE)).can_judge


def test_the_published_rule_wants_the_same_bits() -> None:
    exact, first, second = unsteady(1e-6)
    assert refer(exact, first, second).can_judge
    assert not refer(exact, first, second, by=rule("field")).can_judge
    assert refer(exact, first, by=rule("field")).can_judge


def test_noise_that_differs_between_runs_can_be_judged() -> None:
    exact = {"gradient.w": noisy(4096), "gradient.k": 1e-18 * noisy(64, 1)}
    first, second = (
        {"gradient.w": exact["gradient.w"].float(), "gradient.k": 1e-9 * noisy(64, s).float()} for s in (2, 3)
    )
    reference = refer(exact, first, second)
    assert reference.can_judge
    assert reference.relative_spread < 1e-8
    garbage = with_tensor(second, "gradient.k", noisy(64, 4).float())
    assert not refer(exact, first, garbage).can_judge


def test_runs_that_differ_in_form_or_in_infinities_cannot_judge() -> None:
    eager = {"output": torch.tensor([1.0, math.inf, math.nan])}
    assert refer(None, eager, {"output": eager["output"].clone()}).can_judge
    for other in ([1.0, math.inf, 0.0], [1.0, -math.inf, math.nan], [1.0, 3.4e38, math.nan]):
        reference = refer(None, eager, {"output": torch.tensor(other)})
        assert not reference.can_judge
        assert not reference.bit_equal
    assert not refer(None, eager, {"output": torch.ones(4)}).can_judge
    assert not refer(None, eager, {"output": torch.ones(3).double()}).can_judge
    assert not refer(None, eager, {}).can_judge
    assert not refer(None, {}, eager).can_judge


def test_a_spread_is_measured_beside_infinities() -> None:
    first = noisy(4096).float()
    first[:10] = -math.inf
    second = first * (1 + 1e-4)
    reference = refer(None, {"output": first}, {"output": second})
    assert reference.relative_spread == pytest.approx(1e-4, rel=1e-2)


def test_integers_that_differ_between_runs_widen_their_limit_by_their_share() -> None:
    first = {"output": torch.zeros(1000, dtype=torch.int64)}
    second = {"output": first["output"].index_fill(0, torch.arange(5), 1)}
    reference = refer(first, first, second)
    assert reference.relative_spread == 0.005
    given = {"output": first["output"].index_fill(0, torch.arange(10, 20), 1)}
    assert compare(reference, given).failed == 0
    assert compare(refer(first, first), given).failed == 1


# -- no fp64 run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "off", "passes"), [
    ("float32", 5e-3, True),
    ("float32", 2e-2, False),
    ("bfloat16", 0.1, True),
    ("bfloat16", 0.15, False),
])  # fmt: skip
def test_without_fp64_eager_is_the_truth(dtype: str, off: float, *, passes: bool) -> None:
    kind = precision(dtype, "cpu").lowest
    eager = {"output": noisy(4096).to(kind), "gradient.w": noisy(4096, 1).to(kind)}
    reference = refer(None, eager, by=rule(dtype=dtype))
    given = with_tensor(eager, "gradient.w", (eager["gradient.w"].double() * (1 + off)).to(kind))
    found = compare(reference, given)
    assert found.reference == "eager"
    assert (found.failed == 0) is passes


def test_without_fp64_noise_is_known_by_its_size() -> None:
    subject = trial("attention")
    right = results(subject.variant())
    reference = refer(None, right)
    bias = right["gradient.key.bias"]
    assert compare(reference, right).noise_tensors == ("gradient.key.bias",)
    assert compare(reference, with_tensor(right, "gradient.key.bias", -3 * bias)).failed == 0
    garbage = with_tensor(right, "gradient.key.bias", bias + 1e-3)
    assert compare(reference, garbage).failed == 1


def test_a_tensor_that_fp64_has_not_is_held_against_eager() -> None:
    eager = {"output.0": noisy(4096).float(), "output.1": noisy(4096, 1).float()}
    reference = refer({"output.0": noisy(4096)}, eager)
    assert compare(reference, eager).failed == 0
    assert compare(reference, with_tensor(eager, "output.1", eager["output.1"] * 1.02)).failed == 1


@pytest.mark.parametrize(("dtype", "off"), [("float32", 0.1), ("bfloat16", 0.6)])
def test_an_fp64_run_of_something_else_is_not_believed(dtype: str, off: float) -> None:
    """A model that draws random numbers draws others in fp64: everything would pass as noise."""
    eager = {"output": noisy(4096).float(), "gradient.w": noisy(4096, 1).float()}
    exact = {name: tensor.double() + off * noisy(4096, 9) for name, tensor in eager.items()}
    reference = refer(exact, eager, by=rule(dtype=dtype))
    assert reference.exact is None
    wrong = with_tensor(eager, "gradient.w", eager["gradient.w"] * 1.3)
    assert compare(reference, eager).failed == 0
    assert compare(reference, wrong).failed == 1


class Random(nn.Module):
    """Adds random numbers, which torch draws otherwise in fp64."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        return y + torch.randn_like(y)


def test_a_model_that_draws_random_numbers_is_held_against_eager() -> None:
    torch.manual_seed(0)
    work = Workload(module=Random(), args=(torch.randn(64, 32),))
    subject = Trial(workload=work, dtype="float32", mode=INFERENCE)
    assert subject.reference().exact is None
    assert subject.judge(load_backend("eager")).failed == 0
    assert subject.judge(wrong_by(1.01, "randn")).failed == 1


def test_the_slope_without_outliers_has_a_limit_of_its_own() -> None:
    """A few large values hide eager's slope in the rest, which must not count against the candidate."""
    size = (64, 192)
    exact = {"gradient.large": noisy(size), "gradient.w": 1e-7 * noisy(size, 1)}
    eager = {name: tensor.clone() for name, tensor in exact.items()}
    eager["gradient.w"] = 0.96 * eager["gradient.w"] + 0.8e-7 * noisy(size, 2)
    for tensors in (exact, eager):
        tensors["gradient.w"].view(-1)[:12] = 0.5  # these values bfloat16 has
    eager = {name: tensor.bfloat16() for name, tensor in eager.items()}
    found = compare(refer(exact, eager, by=rule(dtype="bfloat16")), eager)
    assert found.failed == 0, found.worst
