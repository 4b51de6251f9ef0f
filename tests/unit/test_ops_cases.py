"""The suite ops as the runner sees it: its list of cases, and what it promises of them. No torch."""

import math

import pytest

from harness.schema import SCALES, Case, Mode, Setting
from runner.analysis.comparison import OPERATION
from suites import ops

BATCHED = {"matmul_batched", "attention", "attention_spelled_out"}
L3_BYTES = 32 * 2**20  # of the processor whose runs are committed


def offered(scale: str) -> tuple[Case, ...]:
    return ops.cases(Setting(mode=Mode.INFERENCE, device_type="cpu", scale=scale))


@pytest.mark.parametrize("scale", SCALES)
def test_every_case_is_an_operation_and_its_batch_is_its_first_size(scale: str) -> None:
    for case in offered(scale):
        assert OPERATION in case.tags
        assert case.batch_size == ops.entries()[case.name].sizes(scale)[0]


def test_the_published_product_is_the_published_one() -> None:
    rows, inner, columns = ops.entries()["matmul_published"].sizes("full")
    assert (rows, inner, columns) == (16384, 32768, 8192)
    assert 2 * rows * inner * columns == pytest.approx(8.796e12, rel=1e-4)
    assert ops.entries()["matmul_published"].sizes("small") == (rows // 16, inner // 16, columns // 16)


@pytest.mark.parametrize("name", list(ops.entries()))
def test_scales_fall_and_what_memory_limits_is_larger_than_the_caches(name: str) -> None:
    entry = ops.entries()[name]
    full, small, tiny = (math.prod(entry.sizes(scale)) for scale in ("full", "small", "tiny"))
    assert full > small > tiny
    assert len(entry.sizes("full")) == (4 if name in BATCHED else len(entry.sizes("small")))
    if not name.startswith("matmul") and name not in BATCHED:
        assert 4 * small > L3_BYTES


@pytest.mark.parametrize("name", list(ops.entries()))
def test_every_entry_says_what_it_is_there_for(name: str) -> None:
    entry = ops.entries()[name]
    assert len(entry.source.split()) >= 4
    if name.startswith(("view", "copy")):
        assert entry.shares is name.startswith("view")
    else:
        assert entry.shares is None
