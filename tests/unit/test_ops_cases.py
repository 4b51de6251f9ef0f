"""The suite ops as the runner sees it: its list of cases, and what it promises of them. No torch."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from harness.schema import SCALES, Case, Mode, Setting
from runner.analysis.comparison import OPERATION
from suites import _direct, ops

REPOSITORY = Path(ops.__file__).resolve().parents[1]
BATCHED = {"matmul_batched", "attention", "attention_spelled_out"}
L3_BYTES = 32 * 2**20  # of the processor whose runs are committed


def offered(scale: str, mode: Mode = Mode.INFERENCE) -> tuple[Case, ...]:
    return ops.cases(Setting(mode=mode, device_type="cpu", scale=scale))


@pytest.mark.parametrize("scale", SCALES)
def test_every_case_is_offered_once_and_is_an_operation(scale: str) -> None:
    cases = offered(scale)
    assert [case.name for case in cases] == list(ops.entries())
    for case in cases:
        assert (case.suite, case.mode, case.scale) == ("ops", Mode.INFERENCE, scale)
        assert OPERATION in case.tags
        assert case.batch_size == ops.entries()[case.name].sizes(scale)[0]


def test_the_tag_is_the_one_that_reports_look_for() -> None:
    assert ops.OPERATION == OPERATION


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.GENERATE])
def test_operations_are_not_trained(mode: Mode) -> None:
    assert offered("small", mode) == ()


def test_all_kinds_of_operation_are_there() -> None:
    names = set(ops.entries())
    assert sum(name.startswith("matmul") for name in names) >= 5
    assert {"view_transpose", "view_slice", "copy_transpose", "copy_slice", "view_contiguous"} <= names
    assert {"add", "sum_rows", "sum_columns", "softmax", "layer_norm", "attention"} <= names


def test_the_published_product_is_the_published_one() -> None:
    rows, inner, columns = ops.entries()["matmul_published"].sizes("full")
    assert (rows, inner, columns) == (16384, 32768, 8192)
    assert 2 * rows * inner * columns == pytest.approx(8.796e12, rel=1e-4)
    assert ops.entries()["matmul_published"].sizes("small") == (rows // 16, inner // 16, columns // 16)


def test_the_other_products_of_the_lesson_are_there() -> None:
    assert ops.entries()["matmul_published_cpu"].sizes("small") == (1024, 256, 64)
    assert ops.entries()["matmul_shared"].sizes("tiny") == (4, 8, 16, 32, 2)


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


def test_quick_has_a_product_a_view_and_a_copy() -> None:
    quick = [case.name for case in offered("small") if "quick" in case.tags]
    assert {"matmul_xs", "view_transpose", "copy_transpose"} <= set(quick)
    assert len(quick) <= 6


def test_listing_imports_no_torch_and_the_file_is_a_script() -> None:
    program = (
        "import sys; from harness.schema import Mode, Setting; from suites import ops;"
        "ops.cases(Setting(mode=Mode.INFERENCE, device_type='cpu', scale='small'));"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
    assert _direct.command(ops.__file__, ["--inference"])[2:] == ["--suites=ops", "--inference"]


def test_the_script_lists_its_cases() -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "suites" / "ops.py"), "--list", "--inference"],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.splitlines()) == len(ops.entries())
