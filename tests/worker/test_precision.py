"""What the words of ``--dtypes`` mean; results that are compared are on one device (``meta``: a GPU)."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.parity.between import export, imported
from harness.parity.measure import sketch
from harness.precision import TF32_UNIT, facts, precision, settle
from harness.schema import Status
from harness.timing.modes import InFp64, grouped_product
from harness.timing.workbench import Workbench
from harness.workload import Workload
from tests.factories import known, make_job
from tests.worker.planted import CPU, Of, drawn, rule, truth_of, unopened, workload

BF16, F16 = torch.bfloat16, torch.float16
Kind = torch.dtype | None


@pytest.mark.parametrize(
    ("name", "device", "cast", "autocast", "tf32"),
    [
        ("float32", "cpu", None, None, False),
        ("tf32", "cuda", None, None, True),
        ("bfloat16", "cpu", BF16, None, False),
        ("float16", "cuda", F16, None, False),
        ("amp", "cpu", None, BF16, False),
        ("amp", "cuda", None, F16, False),
        ("amp_bfloat16", "cuda", None, BF16, False),
        ("amp_float16", "cpu", None, F16, False),
        ("amp_bfloat16+tf32", "cuda", None, BF16, True),
    ],
)
def test_each_word(name: str, device: str, cast: Kind, autocast: Kind, tf32: bool) -> None:
    settings = precision(name, device)
    assert (settings.name, settings.cast, settings.autocast, settings.tf32) == (name, cast, autocast, tf32)


@pytest.mark.parametrize("name", ["", "fp32", "tf32+tf32", "bfloat16+amp", "amp_tf32", "+tf32"])
def test_others_are_not(name: str) -> None:
    with pytest.raises(ValueError, match="there is no precision"):
        precision(name, "cpu")


def test_the_unit_is_that_of_the_coarsest_rounding() -> None:
    assert precision("float32", "cuda").unit == 2.0**-23
    assert precision("tf32", "cuda").unit == TF32_UNIT
    assert precision("tf32", "cuda").reduced
    assert precision("amp_bfloat16+tf32", "cuda").unit == 2.0**-7


# -- settings that a model changes --------------------------------------------------------------
@pytest.fixture
def settled() -> Iterator[None]:
    settle(torch.device("cpu"))
    yield
    settle(torch.device("cpu"))
    torch.backends.cudnn.allow_tf32 = True  # torch's default


MATMUL: Any = torch.backends.cuda.matmul
CUDNN: Any = torch.backends.cudnn
CHANGES = (
    *(partial(setattr, place, "allow_tf32", True) for place in (MATMUL, CUDNN)),
    *(
        partial(setattr, place, "fp32_precision", "tf32")
        for place in (MATMUL, torch.backends, CUDNN, CUDNN.conv, CUDNN.rnn)
    ),
    *(partial(torch.set_float32_matmul_precision, word) for word in ("high", "medium")),
)


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("tf32", [False, True])
def test_what_a_model_sets_is_put_back_and_reported(change: Callable[[], None], *, tf32: bool) -> None:
    """In torch's older way and in its newer one, which refuse to be read when both were used."""
    cpu = torch.device("cpu")
    settle(cpu, tf32=tf32)
    expected = facts()
    assert (expected["matmul_allow_tf32"], expected["cudnn_allow_tf32"]) == (tf32, tf32)
    assert not settle(cpu, tf32=tf32)
    change()
    changed = facts() != expected
    assert settle(cpu, tf32=tf32) is changed
    assert changed or tf32
    assert facts() == expected
    newer: Any = torch.backends
    assert newer.cudnn.conv.fp32_precision == ("tf32" if tf32 else "none")
    assert newer.cuda.matmul.fp32_precision == ("tf32" if tf32 else "ieee")


# -- in sessions ----------------------------------------------------------------------------------
def test_results_of_another_environment_come_to_the_device(tmp_path: Path) -> None:
    of = workload("mlp")
    truth = truth_of({"output": drawn(8)}, {"output": drawn(8), "mask": torch.ones(2, dtype=torch.bool)})
    export(tmp_path / "weights", of, truth)
    assert {tensor.device for tensor in (*truth.eager.values(), *known(truth.exact).values())} == {CPU}
    moved = known(imported(tmp_path / "weights", of)[0].truth(rule("field"), CPU))
    assert moved.eager["mask"].dtype == torch.bool


def test_a_sketch_of_a_large_tensor_stays_on_its_device() -> None:
    for size in (4, 1 << 17):
        kept = sketch("output", torch.ones(size, device="meta"))
        assert (kept.device.type, kept.numel()) == ("meta", size)


def test_a_model_that_turns_tf32_on_is_measured_without_and_reported() -> None:
    def turning(x: torch.Tensor, linear: torch.nn.Linear) -> Any:
        torch.backends.cuda.matmul.allow_tf32 = True
        return linear(x)

    def build() -> Workload:
        torch.backends.cudnn.allow_tf32 = True
        module = Of(turning, torch.nn.Linear(4, 4))
        return Workload(module=module, args=(torch.ones(2, 4),), loss=lambda out, _: out.mean())

    ready = unopened(build)
    model, environment = ready.open()
    said = [remark for remark in model.remarks if "float32 products" in remark]
    assert [remark.partition("products ")[2] for remark in said] == [
        "while it is built: restored",
        "in its step, and again in each later step: restored",
    ]
    assert environment["cudnn_allow_tf32"] is False
    assert ready.prepare("eager")[0] is Status.PASS


def test_tf32_is_switched_in_steps_only_where_variants_differ() -> None:
    """A switch takes time that a tiny step shows, and its closure must not keep the variant alive."""
    switched = []
    for dtype, baseline in (("tf32", None), ("float32", None), ("tf32", "float32")):
        bench = Workbench(make_job(dtype=dtype, baseline_dtype=baseline), CPU, workload("mlp"))
        bench.settle()
        variants = [bench.variant(bench.baseline_precision), bench.variant()]
        switched.append({variant.step.__name__ == "switched" for variant in variants})
        laps = [variant.step_with(lambda: None).__name__ == "switched" for variant in variants]
        assert {*laps} == switched[-1]
        seen = []
        for variant in variants:
            variant.step()
            seen.append(bool(torch.backends.cuda.matmul.allow_tf32))
        assert seen == [bench.baseline_precision.tf32, bench.precision.tf32]
    assert switched == [{False}, {False}, {True}]
    torch.backends.cuda.matmul.allow_tf32 = False


# -- operations without an fp64 kernel ------------------------------------------------------------
ENDS = torch.tensor([2, 2, 5], dtype=torch.int32)  # the second group is empty
SHAPES = {"rows": ((8, 8), (3, 8, 16)), "columns": ((3, 16, 8), (8, 8)), "inner": ((16, 8), (8, 24))}


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no grouped products")
@pytest.mark.parametrize("form", ["rows", "columns", "inner"])
def test_a_grouped_product_is_torchs(form: str) -> None:
    torch.manual_seed(0)
    shape_a, shape_b = SHAPES[form]
    a, b = torch.randn(shape_a), torch.randn(shape_b)
    expected = torch._grouped_mm(a.bfloat16(), b.bfloat16(), offs=ENDS).float()
    with InFp64():
        product = torch._grouped_mm(a.bfloat16().double(), b.bfloat16().double(), offs=ENDS)
    assert product.dtype == torch.float64
    assert product.shape == expected.shape
    if form == "rows":  # torch leaves what lies behind the last end undefined
        expected, product = expected[: ENDS[-1]], product[: ENDS[-1]]
    if form == "columns":
        expected, product = expected[:, : ENDS[-1]], product[:, : ENDS[-1]]
    torch.testing.assert_close(product.float(), expected, rtol=0.02, atol=0.02)


def test_a_grouped_product_has_gradients_and_zeros_behind_the_last_group() -> None:
    product = grouped_product(torch.ones(6, 4), torch.ones(3, 4, 2), ENDS)
    assert product.tolist() == [[4.0, 4.0]] * 5 + [[0.0, 0.0]]
    a, b = torch.randn(3, 2, 4), torch.randn(3, 4, 5)
    assert torch.equal(grouped_product(a, b), a @ b)  # without offsets: of batches
    given = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((6, 4), (3, 4, 2))]
    assert torch.autograd.gradcheck(lambda x, y: grouped_product(x, y, ENDS), given)


def test_a_constant_that_fits_fp64_alone_is_fp64() -> None:
    least = torch.finfo(torch.float64).min
    with InFp64():
        constants = (torch.full((2,), least), torch.tensor(least))
        assert [float(constant.max()) for constant in constants] == [least, least]
        assert torch.full((2,), 0.1).dtype == torch.tensor(0.1).dtype == torch.float32
        assert torch.full((2,), -float("inf")).dtype == torch.float32
