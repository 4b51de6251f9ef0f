"""Operations without an fp64 kernel: ``harness.timing.exact``."""

import pytest
import torch

from harness.timing.exact import InFp64, grouped_product

ENDS = torch.tensor([2, 2, 5], dtype=torch.int32)  # the second group is empty
SHAPES = {
    "rows": ((8, 8), (3, 8, 16)),
    "columns": ((3, 16, 8), (8, 8)),
    "inner": ((16, 8), (8, 24)),
}


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no grouped products")
@pytest.mark.parametrize("form", ["rows", "columns", "inner"])
def test_a_grouped_product_is_torchs(form: str) -> None:
    torch.manual_seed(0)
    shape_a, shape_b = SHAPES[form]
    a, b = torch.randn(shape_a), torch.randn(shape_b)
    expected = torch._grouped_mm(a.bfloat16(), b.bfloat16(), offs=ENDS).float()
    with InFp64():
        found = torch._grouped_mm(a.bfloat16().double(), b.bfloat16().double(), offs=ENDS)
    assert found.dtype == torch.float64
    assert found.shape == expected.shape
    if form == "rows":  # torch leaves what lies behind the last end undefined
        expected, found = expected[: ENDS[-1]], found[: ENDS[-1]]
    if form == "columns":
        expected, found = expected[:, : ENDS[-1]], found[:, : ENDS[-1]]
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.02)


def test_what_lies_behind_the_last_group_is_zero() -> None:
    found = grouped_product(torch.ones(6, 4), torch.ones(3, 4, 2), ENDS)
    assert torch.equal(found[:5], torch.full((5, 2), 4.0))
    assert torch.equal(found[5:], torch.zeros(1, 2))


def test_without_offsets_it_is_a_product_of_batches() -> None:
    a, b = torch.randn(3, 2, 4), torch.randn(3, 4, 5)
    assert torch.equal(grouped_product(a, b), a @ b)


def test_it_has_gradients() -> None:
    a = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    b = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, y: grouped_product(x, y, ENDS), (a, b))


def test_other_operations_and_precisions_are_left_alone() -> None:
    with InFp64():
        assert torch.equal(torch.ones(2, dtype=torch.float64) + 1, torch.full((2,), 2.0).double())
        assert torch.ones(2).dtype == torch.float32


def test_a_constant_that_fits_fp64_alone_is_fp64() -> None:
    least = torch.finfo(torch.float64).min
    with InFp64():
        made = (torch.full((2,), least), torch.tensor(least))
        assert [float(one.max()) for one in made] == [least, least]
        assert torch.full((2,), 0.1).dtype == torch.tensor(0.1).dtype == torch.float32
        assert torch.full((2,), -float("inf")).dtype == torch.float32
