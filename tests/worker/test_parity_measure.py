"""What is kept of a tensor, and its error: nothing that a sketch leaves out may hide damage."""

import math

import pytest
import torch
from torch import nn

from harness.parity.data import Data, placed
from harness.parity.measure import (
    BLOCK,
    ROW,
    Error,
    digest,
    error_of,
    flat,
    same_bits,
    scale_of,
    sketch,
    whole_of,
)
from harness.parity.noise import LOUDNESS, Noise
from harness.parity.watch import _few
from harness.workload import Workload
from tests.factories import known
from tests.worker.planted import drawn, inference, opened

NAMES = ("output", "gradient.w")


def error(name: str, truth: torch.Tensor, other: torch.Tensor) -> Error:
    """Of the sketches."""
    return error_of(name, flat(sketch(name, truth)), flat(sketch(name, other)))


def reference(part: int, truth: torch.Tensor, other: torch.Tensor) -> Error:
    """By the definition."""
    rest = (other - truth).double().flatten()
    parts = rest[: rest.numel() // part * part].view(-1, part)
    return Error(
        size=float(rest.square().mean().sqrt()),
        part=float(parts.square().mean(1).sqrt().max()),
        slope=float((rest * truth.flatten()).sum() / truth.double().square().sum()),
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [ROW * BLOCK // 4 + 3, 2 * BLOCK])
def test_the_error_of_what_is_kept_whole_is_that_of_the_definition(count: int, dtype: torch.dtype) -> None:
    truth = drawn(count)
    other = (truth * 1.01 + 1e-3 * drawn(count, 1)).to(dtype)
    for name, part in zip(NAMES, (ROW, BLOCK), strict=True):
        both = error(name, truth, other), reference(part, truth, other.double())
        distance, meant = ([of.size, of.part, of.slope] for of in both)
        assert distance == pytest.approx(meant)
    assert scale_of(truth) == pytest.approx(float(truth.square().mean().sqrt()))


def test_what_the_checks_draw_does_not_depend_on_a_default_device() -> None:
    """As torch.set_default_device("cuda") in a model's code."""
    variant = inference(nn.LayerNorm(64), torch.randn(4, 64)).variant()  # its bias is zero
    values = drawn(1 << 17).float()

    def drawings() -> list[torch.Tensor]:
        with placed(variant, Data(weights=True, inputs=True, neighbor=1)):
            weights = [parameter.detach().clone() for parameter in variant.program.module.parameters()]
        with Noise(LOUDNESS, seed=0):
            noisy = values * 1.1
        return [*weights, noisy, sketch("gradient.w", values), _few(values)]

    here = drawings()
    with torch.device("meta"):
        there = drawings()
    assert all(map(torch.equal, here, there))


def test_a_session_keeps_sketches_of_its_runs_and_not_the_results_themselves() -> None:
    """The field rule compares all elements, of few runs."""

    def work() -> Workload:
        module = nn.Linear(512, 512, bias=False)
        return Workload(module=module, args=(torch.ones(1, 512),), loss=lambda out, _: out.square().mean())

    for parity, whole in (("noise", False), ("field", True)):
        checks = known(opened(work, parity=parity)._checks)
        assert (checks.truth.eager["gradient.weight"].numel() == 512 * 512) is whole


@pytest.mark.parametrize("name", NAMES)
def test_a_sketch_of_a_large_tensor_has_its_size_and_slope(name: str) -> None:
    count = 3 * whole_of(name) + 17
    truth = drawn(count).float()
    other = truth * 1.001 + 1e-3 * drawn(count, 1).float()
    kept = sketch(name, truth)
    assert kept.numel() < count / 2
    assert kept.data_ptr() != truth.data_ptr()
    distance = error(name, truth, other)
    assert distance.size == pytest.approx(1e-3 * math.sqrt(2), rel=0.1)
    assert distance.slope == pytest.approx(1e-3, rel=0.2)
    assert same_bits(kept, sketch(name, truth.clone()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", [0.0, 0.3, 0.7777, 1.0])
def test_damage_anywhere_in_a_large_tensor_is_seen_by_its_sketch(place: float, name: str) -> None:
    """One value in millions, and one lost part."""
    part = ROW if name == "output" else BLOCK
    truth = drawn(4 * whole_of(name)).float()
    at = min(int(place * truth.numel()), truth.numel() - 1)
    other = truth.clone()
    other[at] += 1.0
    assert not same_bits(sketch(name, truth), sketch(name, other))
    assert error(name, truth, other).part >= 0.99 / math.sqrt(part)
    start = at // part * part
    other[start : start + part] = 0.0
    assert error(name, truth, other).part > 0.01  # a sum with random signs may be small by chance


def test_small_tensors_are_kept_as_they_are_and_large_outputs_too() -> None:
    for name, count in (("gradient.w", 32 * BLOCK), ("output", 1024 * BLOCK), ("loss", 1)):
        values = drawn(count).bfloat16()
        assert same_bits(sketch(name, values), values)
    assert same_bits(sketch("buffer.ids", torch.arange(9)), torch.arange(9))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_large_tensors_of_other_types_keep_blocks_with_the_last_elements(dtype: torch.dtype) -> None:
    values = drawn(100 * BLOCK + 7).mul(100).to(dtype)
    kept = sketch("gradient.w", values)
    assert (kept.dtype, kept.numel()) == (dtype, 32 * BLOCK)
    assert same_bits(kept[-BLOCK:], values[-BLOCK:])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int32])
def test_a_digest_sees_every_bit(dtype: torch.dtype) -> None:
    values = drawn((64, 2048)).mul(100).to(dtype)
    for place in (0, 77_777, values.numel() - 1):
        other = values.clone()
        other.view(-1)[place] *= 2
        assert digest(other) != digest(values)
    assert digest(values.clone()) == digest(values)
    assert digest(values[:, :1024]) != digest(values)


def test_a_digest_sees_exchanged_parts_and_a_change_of_sign() -> None:
    large = drawn(3 << 22).float()
    exchanged = torch.cat((large[1 << 22 :], large[: 1 << 22]))
    assert digest(exchanged) != digest(large)
    assert digest(large.flip(0)) != digest(large)
    negative = torch.zeros(8)
    negative[3] = -0.0
    assert digest(negative) != digest(torch.zeros(8))


def test_the_same_bits() -> None:
    values = torch.tensor([1.0, math.nan, math.inf])
    assert same_bits(values, values.clone())
    others = (values.double(), values[:2], values.flip(0), torch.tensor([1.0, 0.0, math.inf]))
    assert not any(same_bits(values, other) for other in others)
    assert not same_bits(values, values.to("meta"))


def test_integers_have_a_share_and_complex_numbers_two_parts() -> None:
    truth = torch.arange(1000)
    assert error_of("output", truth, truth.index_fill(0, torch.arange(10), -1)).size == 0.01
    numbers = torch.complex(drawn(500), drawn(500, 1))
    off = torch.complex(numbers.real, numbers.imag * 1.01)
    distance = error("output", numbers, off.to(torch.complex64))
    assert distance.size == pytest.approx(
        0.01 * float(numbers.imag.square().mean().sqrt()) / math.sqrt(2), rel=1e-3
    )
