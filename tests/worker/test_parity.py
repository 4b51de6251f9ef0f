"""The parity rules: their figures on tensors made by hand, the forms of tensors, infinities and NaN."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from harness.parity.rule import compare, compare_both, worse
from harness.schema import Mode, Parity
from tests.worker.planted import failure, noisy, refer, rule, with_tensor

TRAINING, INFERENCE = Mode.TRAINING, Mode.INFERENCE


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
        # m * e + max(tol / 10, unit) * s, with e = 2**-10 * s and s = 4, of a gradient
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
    reference = refer({"gradient": exact}, {"gradient": eager}, by=rule(mode=mode, dtype=dtype))
    found = compare(reference, {"gradient": (exact - 2**-7).to(torch.float32)})
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
    error = noisy(4096, 1)
    error -= exact * torch.dot(error, exact) / torch.dot(exact, exact)  # no slope: it has a limit of its own
    wrong = (exact + share * found.worst.allowed * error / error.square().mean().sqrt()).to(torch.float32)
    found = compare(reference, {"gradient.w": wrong})
    assert (found.failed == 0) is passes


@pytest.mark.parametrize("name", ["output", "loss"])
def test_outputs_and_loss_of_a_training_step_have_the_limits_of_inference(name: str) -> None:
    exact = {name: noisy(4096), "gradient.w": noisy(4096, 1)}
    eager = {n: tensor.float() for n, tensor in exact.items()}
    error = 5e-4 * noisy(4096, 2).float()
    assert compare(refer(exact, eager), with_tensor(eager, name, eager[name] + error)).failed == 1
    assert (
        compare(refer(exact, eager), with_tensor(eager, "gradient.w", eager["gradient.w"] + error)).failed
        == 0
    )


# -- a wrong factor ----------------------------------------------------------------------------------------


def rounded(exact: torch.Tensor, level: float, seed: int) -> torch.Tensor:
    """With independent roundings of this size, relative to the whole."""
    return (exact + level * noisy(exact.numel(), seed)).float()


@pytest.mark.parametrize(
    ("dtype", "level", "factor", "passes"),
    [
        ("float32", 1e-6, 1.0004, True),
        ("float32", 1e-6, 1.0007, False),
        ("float32", 6e-3, 1.0, True),
        ("float32", 6e-3, 1.005, False),  # the errors of a kink
        ("bfloat16", 3e-3, 1.0, True),
        ("bfloat16", 3e-3, 1.005, False),
        ("bfloat16", 1.1e-2, 1.0, True),
        ("bfloat16", 1.1e-2, 1.01, False),
    ],
)
def test_a_wrong_factor_is_seen_below_the_roundings(
    dtype: str, level: float, factor: float, *, passes: bool
) -> None:
    exact = {"gradient.w": noisy(1 << 16)}
    for seed in range(5):
        eager = {"gradient.w": rounded(exact["gradient.w"], level, 10 + seed)}
        given = {"gradient.w": rounded(factor * exact["gradient.w"], level, 20 + seed)}
        found = compare(refer(exact, eager, by=rule(dtype=dtype)), given)
        assert (found.failed == 0) is passes, (seed, found.worst)
        assert found.worst is not None
        assert found.worst.slope == pytest.approx(factor - 1, abs=4 * level / 256)


@pytest.mark.parametrize(("factor", "words"), [(1.01, "too large"), (0.99, "too small")])
def test_a_wrong_factor_is_named(factor: float, words: str) -> None:
    exact = noisy(1 << 16)
    eager, given = rounded(exact, 1.1e-2, 1), rounded(factor * exact, 1.1e-2, 2)
    found = compare(refer({"output": exact}, {"output": eager}, by=rule(dtype="bfloat16")), {"output": given})
    assert failure(found).startswith("on the whole ")
    assert words in failure(found)


def test_a_lower_precision_than_asked_is_named() -> None:
    exact = {f"gradient.{n}": noisy(4096, n) for n in range(3)} | {"output": noisy(4096, 9)}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    for size, named in ((3e-4, "TF32 or float16"), (3e-3, "bfloat16"), (0.3, ""), (0.0, "")):
        given = {name: tensor + size * noisy(4096, 99).float() for name, tensor in eager.items()}
        assert compare(refer(exact, eager), given).lower_precision == named
        assert compare(refer(exact, eager, by=rule(dtype="bfloat16")), given).lower_precision == ""


def test_a_verdict_says_what_was_compared() -> None:
    exact = {"loss": torch.tensor(2.0, dtype=torch.float64), "gradient.w": noisy(10)}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    found = compare(refer(exact, eager), eager)
    assert (found.rule, found.reference, found.tolerance) == ("scaled", "fp64", 1e-2)
    assert (found.tensors, found.failed) == (2, 0)
    assert found.eager_bit_equal
    assert found.eager_spread == 0.0
    assert found.noise_tensors == ()


@pytest.mark.parametrize("call", ["first", "settled"])
def test_both_calls_are_compared(call: str) -> None:
    exact = {"output": noisy(2000)}
    eager = {"output": exact["output"].float()}
    wrong = {"output": eager["output"] * 1.01}
    calls = {"first": eager, "settled": {"output": eager["output"].clone()}}
    assert compare_both(refer(exact, eager), calls["first"], calls["settled"]).failed == 0
    calls[call] = wrong
    assert compare_both(refer(exact, eager), calls["first"], calls["settled"]).failed == 1
    assert compare_both(refer(exact, eager), wrong, wrong).failed == 1


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
    assert failure(compare(refer(both, both), fewer)) == "the candidate returned no such tensor"
    assert failure(compare(refer(fewer, fewer), both)) == "eager returned no such tensor"


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
