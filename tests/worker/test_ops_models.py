"""The operations of suite ops: what they compute, what they move, whose storage their results lie in."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.metrics.flops import element_counter, flop_counter
from harness.metrics.traffic import traffic_counter
from harness.schema import BASELINE, WHOLE, Mode, Protocol, Setting, Status
from harness.tensors import inner_tensors
from harness.worker.session import Session
from harness.workload import Workload
from suites import ops
from suites.models.operations import OPERATIONS, hold_to_storage, make_operation, same_storage
from tests.factories import Patch, known, make_job, sampled
from tests.worker.planted import case_of, silent

NAMES = [name for name, entry in ops.entries().items() if not entry.package]
QUANTIZED = [name for name in ops.entries() if name not in NAMES]
VIEWS = [name for name in NAMES if name.startswith("view")]
COPIES = [name for name in NAMES if name.startswith("copy")]
FLOAT = 4  # bytes


operation = partial(case_of, "ops", mode=Mode.INFERENCE)


def workload(name: str) -> Workload:
    torch.manual_seed(0)
    return ops.build(operation(name))


def result_of(given: Workload) -> Tensor:
    with torch.no_grad():
        result: Tensor = given.module(*given.args)
    return result


def moved(given: Workload) -> int:
    counter = traffic_counter()
    with counter:
        result_of(given)
    return int(counter.bytes)


def flops_of(given: Workload) -> int:
    with flop_counter() as counter:
        result_of(given)
    return int(counter.get_total_flops())


@pytest.mark.parametrize("name", NAMES)
def test_the_first_size_is_the_batch(name: str) -> None:
    case = operation(name)
    twice = 2 * known(case.batch_size)
    larger = ops.build(replace(case, batch_size=twice))
    assert larger.args[0].shape[0] == 2 * workload(name).args[0].shape[0] == twice
    assert torch.isfinite(result_of(larger)).all()


STRIDES = {
    "view_transpose": (1, 4),
    "view_row": (1,),
    "view_column": (4,),
    "view_slice": (4, 2),
    "view_reshape": (2, 1),
    "view_contiguous": (4, 1),
}  # of results; the input has 8 rows of 4 numbers


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_moves_nothing_differs_by_its_strides_and_shows_what_is_written_through_it(name: str) -> None:
    given = workload(name)
    assert same_storage(result_of(given), given.args[0])
    assert (moved(given), flops_of(given)) == (0, 0)
    (x,) = given.args
    assert x.stride() == (4, 1)
    result, before = result_of(given), x.clone()
    assert result.stride() == STRIDES[name]
    result.add_(1)
    assert int((x != before).sum()) == result.numel()  # the input has changed, in these numbers alone


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_has_its_own_storage_and_moves_what_it_copies(name: str) -> None:
    given = workload(name)
    result = result_of(given)
    assert not same_storage(result, given.args[0])
    assert result.is_contiguous()
    assert moved(given) == 2 * FLOAT * result.numel()  # a strided read is counted by its numbers


def test_a_promise_about_storage_is_held_when_the_case_is_built() -> None:
    x = torch.randn(8, 4)
    with pytest.raises(ValueError, match="CopyClone was to be a view, but has a storage of its own"):
        hold_to_storage(OPERATIONS["copy_clone"]((8, 4)), (x,), shares=True)
    with pytest.raises(ValueError, match="ViewTranspose was to be a copy, but shares"):
        hold_to_storage(OPERATIONS["view_transpose"]((8, 4)), (x,), shares=False)
    with pytest.raises(LookupError, match="no operation called 'fold'"):
        make_operation("fold", (8, 4))


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith(("matmul", "attention"))])
def test_flops_of_products_are_those_of_their_sizes(name: str) -> None:
    sizes = ops.entries()[name].sizes["tiny"]
    products = 2 * sizes[2] if name.startswith("attention") else 1  # queries by keys, then shares by values
    assert flops_of(workload(name)) == 2 * math.prod(sizes) * products


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "attention", "rms_norm"])
def test_what_is_spelled_out_computes_the_same_and_moves_more(name: str) -> None:
    plain, other = workload(name), workload(f"{name}_spelled_out")
    other = replace(other, args=plain.args)
    torch.testing.assert_close(result_of(plain), result_of(other), rtol=1e-5, atol=1e-6)
    assert moved(other) > 1.5 * moved(plain) or name == "rms_norm"  # torch spells it out itself on a CPU


@pytest.mark.parametrize(
    ("name", "each"), [("add", 1), ("sum_rows", 1), ("softmax_spelled_out", 5), ("swiglu", 1), ("softmax", 0)]
)
def test_elementwise_operations_and_sums_have_one_flop_for_each_number(name: str, each: int) -> None:
    given = workload(name)
    with element_counter() as counter:
        result_of(given)
    # of swiglu's numbers each half is used once; softmax is fused
    assert counter.flops == each * given.args[0].numel()
    assert counter.others == (name == "softmax")


def test_an_operation_trains_but_views_and_copies_do_not() -> None:
    setting = Setting(mode=Mode.TRAINING, device_type="cpu", scale="tiny")
    cases = {c.name: c for c in ops.cases(setting)}
    assert set(NAMES) - set(cases) == {*VIEWS, *COPIES}
    for name, case in cases.items():
        given = ops.build(case)
        torch.autograd.backward(known(given.loss)(given.module(*given.args), given.target))
        floating = [x for x in (*given.args, *given.module.parameters()) if x.is_floating_point()]
        assert all(x.grad is not None and bool(x.grad.any()) for x in floating), name


def test_a_convolution_in_the_other_memory_format_computes_the_same() -> None:
    plain, other = workload("convolution"), workload("convolution_channels_last")
    assert other.args[0].is_contiguous(memory_format=torch.channels_last)
    other.module.load_state_dict(plain.module.state_dict())
    torch.testing.assert_close(result_of(plain), other.module(*plain.args))


def test_without_its_package_an_operation_is_skipped_with_a_sentence(monkeypatch: Patch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert {operation(name).skip for name in QUANTIZED} == {
        "needs the package torchao, which is not installed: pip install torchao"
    }
    assert {operation(name).skip for name in NAMES} == {""}


def test_the_parts_of_a_wrapped_weight_are_its_state() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    plain, other = torch.ones(2), torch.zeros(2)
    assert [*inner_tensors("weight", plain)] == [("weight", plain)]
    two: Any = TwoTensor
    named = dict(inner_tensors("weight", two(plain, two(other, plain))))
    assert list(named) == ["weight.a", "weight.b.a", "weight.b.b"]
    assert named["weight.b.a"] is other


# -- through a session --------------------------------------------------------------
def session_of(name: str, candidate: str) -> Session:
    protocol = Protocol(min_sample_s=0.01, threads=1)
    job = replace(make_job(candidates=(candidate,), protocol=protocol), case=operation(name))
    return Session(job, silent)


@pytest.mark.parametrize("name", ["view_transpose", "view_contiguous"])
def test_a_compiled_view_is_a_view_and_the_record_says_that_nothing_moves(name: str) -> None:
    torch._dynamo.reset()
    session = session_of(name, "aot_eager")
    session.open()
    status, parity, numbers, _ = session.prepare("aot_eager")
    assert status is Status.PASS
    assert parity is not None
    assert numbers["calls_captured"] == 1
    for variant in (session._variants[BASELINE], session._variants["aot_eager"]):
        _, result = variant.step()
        assert same_storage(result, variant.program.args[0])
    assert session.warm_up()["iterations_per_sample"] != 1  # microseconds: many in a sample
    metrics = session.conclude()[WHOLE]
    assert metrics["bytes_per_step"] == 0
    assert metrics["flops_per_step"] is None


@pytest.mark.parametrize("name", sampled(5, NAMES))
def test_every_operation_is_scripted_and_passes(name: str) -> None:
    session = session_of(name, "torchscript")
    session.open()
    status, _, _, notes = session.prepare("torchscript")
    assert status is Status.PASS
    assert notes == ("torchscript: scripted",)


@pytest.mark.parametrize("name", QUANTIZED)
def test_a_quantized_weight_passes_and_its_int8_is_kept(name: str) -> None:
    pytest.importorskip("torchao", reason="torchao, which is optional, is not installed")
    torch._dynamo.reset()
    session = session_of(name, "aot_eager")
    facts, _ = session.open()
    status, parity, *_ = session.prepare("aot_eager")
    assert (status, parity and parity.reference) == (Status.PASS, "fp64")
    state = dict(session._variants[BASELINE].state())
    assert state["parameter.linear.weight.qdata"].dtype is torch.int8
    assert facts.parameters < facts.parameter_bytes < 4 * facts.parameters  # the scales are floating
