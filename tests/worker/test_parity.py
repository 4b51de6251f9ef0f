"""The parity rules: their figures on tensors made by hand, their holes, their false alarms."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

from harness.backends import load_backend
from harness.distance import BLOCK
from harness.parity import CANCELLATION, compare, worse
from harness.precision import precision
from harness.reference import Reference, Rule, make_reference, rule_for
from harness.schema import Mode, Parity
from harness.workload import Workload
from tests.worker.planted import MODELS, Trial, put, results, trial, with_tensor, wrong_by

Tensors = dict[str, torch.Tensor]
TRAINING, INFERENCE = Mode.TRAINING, Mode.INFERENCE


def rule(name: str = "scaled", mode: Mode = TRAINING, dtype: str = "float32") -> Rule:
    return rule_for(name, mode, precision(dtype, "cpu"))


def refer(
    exact: Tensors | None, eager: Tensors, second: Tensors | None = None, by: Rule | None = None
) -> Reference:
    return make_reference(exact, eager, eager if second is None else second, by or rule())


def noisy(size: int | tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def failure(found: Parity) -> str:
    """Why the worst tensor failed; something must have."""
    assert found.failed > 0
    assert found.worst is not None
    assert found.worst.failure is not None
    return found.worst.failure


# -- the rule's figures ------------------------------------------------------------------


def test_tolerances_and_units_are_those_of_mode_and_precision() -> None:
    assert rule(mode=INFERENCE).tolerance == 1e-3
    assert rule(mode=TRAINING).tolerance == 1e-2
    assert rule(dtype="float32").unit == 2**-23
    assert rule(dtype="float16").unit == 2**-10
    assert rule(dtype="bfloat16").unit == 2**-7
    assert rule(dtype="amp").unit == 2**-7
    assert [rule(dtype=d).reduced for d in ("float32", "float16", "amp")] == [False, True, True]


def test_an_unknown_rule_is_an_error() -> None:
    with pytest.raises(ValueError, match="'cosine'"):
        rule("cosine")


@pytest.mark.parametrize(
    ("dtype", "mode", "numel", "limit"),
    [
        # m * e + max(tol / 10, unit) * s, with e = 2**-10 * s and s = 4
        ("float32", TRAINING, 2048, 2 * 2**-8 + 1e-3 * 4),
        ("float32", INFERENCE, 2048, 2 * 2**-8 + 1e-4 * 4),
        ("float32", TRAINING, 999, 3 * 2**-8 + 1e-3 * 4),
        ("float32", TRAINING, 1000, 2 * 2**-8 + 1e-3 * 4),
        ("bfloat16", TRAINING, 2048, 3 * 2**-8 + 2**-7 * 4),
        ("amp", INFERENCE, 2048, 3 * 2**-8 + 2**-7 * 4),
        ("float16", INFERENCE, 2048, 3 * 2**-8 + 2**-10 * 4),
    ],
)
def test_the_limits_of_the_scaled_rule(dtype: str, mode: Mode, numel: int, limit: float) -> None:
    exact = torch.full((numel,), 4.0, dtype=torch.float64)
    eager = (exact + 2**-8).to(torch.float32)
    reference = refer({"output": exact}, {"output": eager}, by=rule(mode=mode, dtype=dtype))
    found = compare(reference, {"output": (exact - 2**-7).to(torch.float32)})
    assert found.worst is not None
    assert found.worst.scale == 4.0
    assert found.worst.eager_rmse == 2**-8
    assert found.worst.candidate_rmse == 2**-7
    assert found.worst.candidate_max == 2**-7
    assert found.worst.allowed == pytest.approx(limit, rel=1e-12)
    tolerance = max(reference.rule.tolerance, reference.rule.unit)
    assert found.worst.allowed_max == pytest.approx(10 * 2**-8 + tolerance * 4.0, rel=1e-12)
    assert found.multiplier == (2.0 if dtype == "float32" and numel >= 1000 else 3.0)


@pytest.mark.parametrize(("share", "passes"), [(0.999, True), (1.001, False)])
def test_the_limit_is_where_it_says(share: float, *, passes: bool) -> None:
    exact = noisy(4096)
    eager = (exact * (1 + 1e-6)).to(torch.float32)
    reference = refer({"gradient.w": exact}, {"gradient.w": eager})
    found = compare(reference, {"gradient.w": eager})
    assert found.worst is not None
    limit = found.worst.allowed / found.worst.scale
    wrong = (exact * (1 + share * limit)).to(torch.float32)
    found = compare(reference, {"gradient.w": wrong})
    assert (found.failed == 0) is passes


def test_a_verdict_says_what_was_compared() -> None:
    exact = {"loss": torch.tensor(2.0, dtype=torch.float64), "gradient.w": noisy(10)}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    found = compare(refer(exact, eager), eager)
    assert (found.rule, found.reference, found.tolerance) == ("scaled", "fp64", 1e-2)
    assert (found.tensors, found.failed) == (2, 0)
    assert found.eager_bit_equal
    assert found.eager_spread == 0.0
    assert found.noise_tensors == ()


def test_of_two_checks_the_worse_is_reported() -> None:
    exact = {"loss": noisy(4), "output": noisy(4096)}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    reference = refer(exact, eager)
    good = compare(reference, eager)
    closer = compare(reference, with_tensor(eager, "output", eager["output"] * 1.0003))
    bad = compare(reference, with_tensor(eager, "output", eager["output"] * 2))
    assert worse(good, bad) is bad
    assert worse(bad, good) is bad
    assert worse(good, closer) is closer
    assert worse(closer, good) is closer


def test_the_worst_tensor_is_the_one_nearest_its_limit() -> None:
    exact = {"output.0": noisy(4096), "output.1": 1000 * noisy(4096, 1)}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    given = {"output.0": eager["output.0"] * 1.0002, "output.1": eager["output.1"] * 1.00001}
    worst = compare(refer(exact, eager), given).worst
    assert worst is not None
    assert worst.name == "output.0"  # though the other is further off in absolute terms


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
    assert failure(compare(reference, {"output": wrong})).startswith("outliers left out, RMS error")


def test_a_mask_that_is_another_number_in_fp64_is_no_error() -> None:
    exact = noisy((64, 100))
    eager = exact.float()
    exact[:, 90:] = torch.finfo(torch.float64).min
    eager[:, 90:] = torch.finfo(torch.float32).min
    reference = refer({"output": exact}, {"output": eager})
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


# -- form -----------------------------------------------------------------------------------------


def test_another_dtype_fails() -> None:
    exact = {"output": noisy(8)}
    eager = {"output": noisy(8).float()}
    assert failure(compare(refer(exact, eager), {"output": noisy(8)})) == (
        "dtype torch.float64 instead of torch.float32"
    )


def test_another_shape_fails_even_when_it_would_broadcast() -> None:
    exact = {"output": torch.ones(4, 1, dtype=torch.float64)}
    eager = {"output": torch.ones(4, 1)}
    assert failure(compare(refer(exact, eager), {"output": torch.ones(4, 4)})) == (
        "shape (4, 4) instead of (4, 1)"
    )


@pytest.mark.parametrize("name", ["output", "loss", "gradient.w", "buffer.running_mean"])
def test_a_missing_tensor_fails_and_so_does_one_too_many(name: str) -> None:
    both = {"output.x": noisy(8).float(), name: noisy(8).float()}
    fewer = {"output.x": both["output.x"]}
    assert failure(compare(refer(both, both), fewer)) == "the candidate gave no such tensor"
    assert failure(compare(refer(fewer, fewer), both)) == "eager gave no such tensor"


def test_no_gradient_is_a_gradient_of_zeros() -> None:
    both = {"output": noisy(8).float(), "gradient.unused": torch.zeros(5)}
    without = {"output": both["output"]}
    assert compare(refer(both, both), without).failed == 0
    assert compare(refer(without, without), both).failed == 0


@pytest.mark.parametrize("name", ["buffer.cache", "output.1"])
def test_no_buffer_or_output_is_not_one_of_zeros(name: str) -> None:
    both = {"output.0": noisy(8).float(), name: torch.zeros(5)}
    without = {"output.0": both["output.0"]}
    assert compare(refer(both, both), without).failed == 1
    assert compare(refer(without, without), both).failed == 1


def test_empty_tensors_are_equal() -> None:
    empty = {"output": torch.zeros(0, 4), "output.n": torch.zeros(0, dtype=torch.int64)}
    found = compare(refer({"output": empty["output"].double()}, empty), empty)
    assert (found.tensors, found.failed) == (2, 0)
    assert compare(refer(None, empty), {**empty, "output": torch.zeros(4, 0)}).failed == 1


@pytest.mark.parametrize("by", ["scaled", "field"])
def test_booleans_and_integers_are_compared(by: str) -> None:
    eager = {
        "output.mask": torch.tensor([True, False, True]),
        "output.ids": torch.tensor([1, 2, 50_000]),
        "buffer.count": torch.tensor(7),
    }
    reference = refer(eager, eager, by=rule(by))
    assert compare(reference, eager).failed == 0
    flipped = with_tensor(eager, "output.mask", torch.tensor([True, True, True]))
    assert compare(reference, flipped).failed == 1
    counted_twice = with_tensor(eager, "buffer.count", torch.tensor(8))
    assert compare(reference, counted_twice).failed == 1


def test_an_index_off_by_one_fails_however_large_it_is() -> None:
    ids = {"output.ids": torch.arange(50_000)}
    off = {"output.ids": torch.arange(50_000).index_fill_(0, torch.tensor([49_999]), 49_998)}
    assert failure(compare(refer(ids, ids), off)) == ("1 of 50000 values differ, above the limit 1.19e-07")
    assert compare(refer(ids, ids, by=rule("field")), off).failed == 0  # within 1 % of its size


def test_choices_may_differ_as_often_as_eagers_do() -> None:
    """The largest of nearly equal values: eager chooses another one than fp64 in 10 of 1,000 cases."""
    exact = torch.zeros(1000, dtype=torch.int64)
    eager = exact.index_fill(0, torch.arange(10), 1)
    reference = refer({"output": exact}, {"output": eager})
    few, many = (exact.index_fill(0, torch.arange(500, 500 + n), 1) for n in (20, 21))
    assert compare(reference, {"output": few}).failed == 0
    assert compare(reference, {"output": many}).failed == 1


def test_both_parts_of_complex_values_are_compared() -> None:
    exact = torch.complex(noisy(2000), noisy(2000, 1))
    eager = exact.to(torch.complex64)
    reference = refer({"output": exact}, {"output": eager})
    assert compare(reference, {"output": eager}).failed == 0
    assert compare(reference, {"output": eager.conj().resolve_conj()}).failed == 1
    assert compare(reference, {"output": torch.complex(eager.real, eager.imag * 1.01)}).failed == 1


def test_the_layout_of_a_tensor_does_not_matter() -> None:
    exact = noisy((4, 8, 16, 16))
    eager = exact.float()
    given = eager.to(memory_format=torch.channels_last)
    assert compare(refer({"output": exact}, {"output": eager}), {"output": given}).failed == 0


# -- infinities and NaN --------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["scaled", "field"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_only_the_candidate_loses_fails(value: float, by: str) -> None:
    exact = noisy(10**5)
    given = exact.float()
    given[77] = value
    found = compare(refer({"output": exact}, {"output": exact.float()}, by=rule(by)), {"output": given})
    assert failure(found) == "1 values are not finite where eager's are"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("has_exact", [True, False])
def test_values_that_are_meant_not_to_be_finite_must_be_the_same(value: float, *, has_exact: bool) -> None:
    exact = noisy(1000)
    exact[:10] = value
    eager = {"output": exact.float()}
    reference = refer({"output": exact} if has_exact else None, eager)
    assert compare(reference, {"output": eager["output"].clone()}).failed == 0
    others = {0.0, math.nan, math.inf, -math.inf} - {value}
    for other in others:
        if other is value or (math.isnan(other) and math.isnan(value)):
            continue
        given = {"output": eager["output"].index_fill(0, torch.arange(10), other)}
        assert compare(reference, given).failed == 1, other


@pytest.mark.parametrize("candidate", [math.inf, 70_000.0, math.nan])
def test_an_overflow_of_eager_says_nothing_about_the_candidate(candidate: float) -> None:
    exact = 100 * noisy(1000)
    exact[3] = 70_000.0  # above what float16 holds
    eager = exact.to(torch.float16)
    assert torch.isinf(eager[3])
    given = eager.clone()
    given[3] = candidate
    reference = refer({"output": exact}, {"output": eager}, by=rule(dtype="float16"))
    assert compare(reference, {"output": given}).failed == 0
    given[4] *= 2
    assert compare(reference, {"output": given}).failed == 1  # the others still count


def test_a_tensor_that_overflowed_wholly_is_named() -> None:
    exact = noisy(1000)
    eager = torch.full((1000,), math.nan, dtype=torch.float16)
    reference = refer(
        {"output": exact, "loss": exact}, {"output": eager, "loss": exact.half()}, by=rule(dtype="float16")
    )
    found = compare(reference, {"output": exact.half(), "loss": exact.half()})
    assert (found.failed, found.noise_tensors) == (0, ("output",))


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


def test_a_bias_before_batch_normalisation_is_noise() -> None:
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


def test_what_carries_digits_is_not_excused_by_large_neighbours() -> None:
    exact = {"gradient.w": 1000 * noisy(4096), "gradient.b": 1e-3 * noisy(4096, 1)}
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


# -- the published rule -----------------------------------------------------------------------------------


def field_case(exact: torch.Tensor | None, eager: torch.Tensor, given: torch.Tensor, mode: Mode) -> Parity:
    runs = None if exact is None else {"output": exact}
    return compare(refer(runs, {"output": eager}, by=rule("field", mode)), {"output": given})


def test_the_published_rule_is_absolute() -> None:
    exact = noisy(4096)
    eager = exact.float()
    assert field_case(exact, eager, eager + 9e-3, TRAINING).failed == 0  # allclose
    assert field_case(exact, eager, eager + 9e-3, INFERENCE).failed == 1
    large = 1000 * exact
    assert field_case(large, large.float(), (large * 1.009).float(), TRAINING).failed == 0


def test_the_published_rule_compares_errors_when_values_are_not_close() -> None:
    exact = noisy(4096)
    eager = (exact + 0.1).float()
    assert field_case(exact, eager, (exact - 0.2).float(), TRAINING).failed == 0  # 0.2 <= 2 * 0.1 + 0.001
    found = field_case(exact, eager, (exact - 0.21).float(), TRAINING)
    assert "RMS error 0.21 is above the limit 0.201" in failure(found)


@pytest.mark.parametrize(
    ("shape", "dtype", "multiplier"),
    [
        ((4096,), torch.float32, 2.0),
        ((999,), torch.float32, 3.0),
        ((1024,), torch.bfloat16, 3.0),
        ((64, 32, 1, 1), torch.float32, 3.0),
        ((64, 32, 3, 3), torch.float32, 2.0),
    ],
)
def test_the_published_multipliers(shape: tuple[int, ...], dtype: torch.dtype, multiplier: float) -> None:
    assert rule("field").multiplier(torch.zeros(shape, dtype=dtype)) == multiplier


def test_the_published_fallback_is_the_cosine() -> None:
    eager = noisy(4096).float()
    assert field_case(None, eager, eager * 1.5, TRAINING).failed == 0  # the same direction
    assert field_case(None, eager, eager + 0.2 * noisy(4096, 1).float(), TRAINING).failed == 1


# -- real compilers ------------------------------------------------------------------------------------

SETTINGS = list(product(MODELS, ("float32", "bfloat16", "amp"), (TRAINING, INFERENCE)))


@pytest.mark.parametrize(("name", "dtype", "mode"), SETTINGS)
def test_no_false_alarm_of_captured_graphs(name: str, dtype: str, mode: Mode) -> None:
    found = trial(name, dtype, mode).judge(load_backend("aot_eager"))
    assert found.failed == 0, found.worst
    assert found.reference == "fp64"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype", "mode"), SETTINGS)
def test_no_false_alarm_of_inductor(name: str, dtype: str, mode: Mode) -> None:
    """One compilation, ten draws of weights and inputs."""
    torch._dynamo.reset()
    compiled = trial(name, dtype, mode).variant()
    compiled.use(load_backend("inductor")(compiled.program).forward)
    for seed in range(10):
        subject = trial(name, dtype, mode, seed)
        put(compiled, subject.variant())
        found = compare(subject.reference(), results(compiled))
        assert found.failed == 0, (seed, found.worst)


@pytest.mark.parametrize(
    ("name", "part", "mode"),
    [
        ("mlp", "addmm", TRAINING),
        ("mlp", "addmm", INFERENCE),
        ("conv", "convolution", TRAINING),
        ("conv", "convolution", INFERENCE),
        ("tokens", "embedding", TRAINING),
        ("tokens", "layer_norm", INFERENCE),
        ("attention", "attention", INFERENCE),
    ],
)
def test_one_operation_off_by_a_hundredth_is_caught(name: str, part: str, mode: Mode) -> None:
    subject = trial(name, "float32", mode)
    assert subject.judge(wrong_by(1.0, part)).failed == 0
    assert subject.judge(wrong_by(1.01, part)).failed > 0


@pytest.mark.parametrize(
    ("name", "part"), [("mlp", "mm"), ("conv", "convolution_backward"), ("tokens", "mm")]
)
def test_one_operation_of_the_backward_off_by_a_hundredth_is_caught(name: str, part: str) -> None:
    subject = trial(name)
    assert subject.judge(wrong_by(1.0, part, backward=True)).failed == 0
    assert subject.judge(wrong_by(1.01, part, backward=True)).failed > 0


def test_a_verdict_does_not_depend_on_the_size_of_everything() -> None:
    """The scaled rule has no absolute number in it: a loss scaled by a power of two changes nothing."""
    exact = {"output": noisy(4096), "gradient.w": 0.01 * noisy(4096, 1), "gradient.k": 1e-12 * noisy(64, 2)}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    given = {name: tensor * 1.0004 for name, tensor in eager.items()}
    verdicts = []
    for scale in (2.0**-40, 1.0, 2.0**40):
        by_scale = [{n: t * scale for n, t in run.items()} for run in (exact, eager, given)]
        found = compare(refer(by_scale[0], by_scale[1]), by_scale[2])
        verdicts.append(replace(found, worst=None))
    assert verdicts[0] == verdicts[1] == verdicts[2]
