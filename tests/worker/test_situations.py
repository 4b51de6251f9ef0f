"""Unusual models that work in eager: each is measured, or refused in a sentence that names the way out."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - as torch names it
from torch import nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

from harness.parity.noise import LOUDNESS, Noise
from harness.schema import Protocol, Status
from tests.factories import known
from tests.worker.planted import Of
from torchduet import compare

FEW = Protocol(repeat=10, min_sample_s=0.0)
ROWS = [torch.ones(2, 8), torch.ones(4, 8)]
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of each prototype
jagged = partial(torch.nested.nested_tensor, layout=torch.jagged)


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(ROWS[0], 0.1, 3, torch.quint8)


def net(x: Any, layer: nn.Module) -> Any:
    return layer(x)


def measured(function: Callable[..., Any], *inputs: Any, mode: str = "inference", **more: Any) -> Any:
    model = Of(function, nn.Linear(8, 8))
    protocol = Protocol(repeat=10, min_sample_s=0.0, grad=more.pop("grad", False))
    return compare(model, inputs, mode=mode, compilers=["eager"], protocol=protocol, **more)["eager"].record


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "given"),
    [
        (net, lambda: jagged(ROWS)),
        (net, lambda: torch.nested.nested_tensor(ROWS)),
        (lambda x, layer: torch.nested.as_nested_tensor([layer(x), layer(x[:1])]), ROWS[0]),
        (lambda x, layer: layer(x).relu().to_sparse(), ROWS[0]),
        (lambda x, layer: layer(x).relu().to_sparse_csr(), ROWS[0]),
        (lambda x, layer: layer(x.dequantize()), quantized),
        (lambda x, layer: torch.masked.masked_tensor(layer(x), x > 0), ROWS[0]),
        (lambda x, layer: torch.func.jvp(lambda y: layer(y).sin(), (x,), (torch.ones_like(x),)), ROWS[0]),
        (lambda x, layer: torch.func.hessian(lambda y: layer(y).sin().sum())(x), ROWS[0]),
        (lambda x, layer: (layer(x), torch._efficientzerotensor((3,))), ROWS[0]),
    ],
)
def test_tensors_without_plain_memory_are_measured(function: Callable[..., Any], given: Any) -> None:
    record = measured(function, given() if callable(given) else given)
    assert record.status is Status.PASS, record.failure
    assert known(record.parity).tensors


def backward(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    loss: torch.Tensor = layer(x).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def forces(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(layer(x).sin().sum(), x)[0]


@pytest.mark.parametrize(
    ("function", "mode", "words"),
    [
        (backward, "training", "does its own backward"),
        (lambda x, layer: float(backward(x, layer)), "training", "does its own backward"),
        (forces, "inference", "use --grad"),
        (lambda x, layer: layer(x)[:0], "training", "are empty"),
        (lambda x, layer: torch.fft.fft(layer(x)), "training", "only complex64"),
        (lambda x, layer: layer(x).argmax(-1), "training", "only int64"),
        (lambda x, layer: (layer(x), x.to("meta")), "inference", "torchduet cannot compare it"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(function: Callable[..., Any], mode: str, words: str) -> None:
    record = measured(function, ROWS[0], mode=mode)
    assert words in record.failure.message
    assert (record.status is Status.CANNOT_JUDGE) == ("torchduet cannot" in words)


@pytest.mark.slow
@pytest.mark.parametrize("function", [backward, forces])
def test_a_model_that_computes_gradients_is_measured_with_grad(function: Callable[..., Any]) -> None:
    assert measured(function, ROWS[0], grad=True).status is Status.PASS


def test_the_mean_of_nothing_is_left_out_and_said() -> None:
    record = measured(lambda x, layer: (layer(x), layer(x)[:0]), ROWS[0], mode="training")
    assert record.status is Status.PASS
    assert "without output.1" in str(known(record.model).remarks)


def branches(x: torch.Tensor, layer: nn.Module) -> Any:
    return torch.cond(x.sum() > 0, lambda y: layer(y).sin(), lambda y: layer(y).cos(), (x,))


def nested_branches(x: torch.Tensor, layer: nn.Module) -> Any:
    return torch.cond(x.sum() > 0, lambda y: branches(y, layer), lambda y: layer(y), (x,))


def flexible(x: torch.Tensor, layer: nn.Module) -> Any:
    rows = layer(x).view(1, 1, -1, 8)
    return flex_attention(rows, rows, rows) + F.scaled_dot_product_attention(rows, rows, rows)


def loop(x: torch.Tensor, layer: nn.Module) -> Any:
    start = (x.sum().long() * 0, x)
    run: Any = while_loop
    return run(lambda i, _: i < 3, lambda i, y: (i + 1, layer(y)), start)[1]


def scanned(x: torch.Tensor, layer: nn.Module) -> Any:
    return scan(lambda c, y: (c + y, (c * layer(y)).sin()), torch.zeros_like(x[0]), x)[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "mode"),
    [
        (nested_branches, "inference"),
        (flexible, "inference"),
        (loop, "inference"),
        (scanned, "inference"),
        pytest.param(branches, "training", marks=pytest.mark.long),  # torch traces the backward in each step
    ],
)
def test_operators_that_compile_themselves_are_measured(function: Callable[..., Any], mode: str) -> None:
    model = Of(function, nn.Linear(8, 8))
    result = compare(model, torch.ones(16, 8), mode=mode, compilers=["eager", "aot_eager"], protocol=FEW)
    for name in ("eager", "aot_eager"):
        record = result[name].record
        assert record.status is Status.PASS, record.failure
        assert known(record.parity).reference == "fp64"
        assert record.metrics["flops_per_step"]


def test_noise_reaches_into_such_operators_and_dynamo_compiles_them_afterwards() -> None:
    layer, x = nn.Linear(8, 8), torch.ones(16, 8)
    first = branches(x, layer)
    with Noise(LOUDNESS, 1):
        noisy = branches(x, layer)
    assert torch.equal(branches(x, layer), first)
    assert not torch.equal(noisy, first)


class Normed(torch.optim.SGD):
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for weight in self.param_groups[0]["params"]:
            weight.grad /= weight.grad.norm()
        super().step()


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.series
def test_an_optimizer_that_takes_no_zero_gradient_begins_with_a_real_one(*, sparse: bool) -> None:
    model = Of(lambda x, bag: bag(x), nn.EmbeddingBag(9, 4, sparse=sparse))
    own = torch.optim.SparseAdam if sparse else partial(Normed, momentum=0.9)
    given = partial(compare, mode="training", compilers=["eager"], protocol=FEW)
    record = given(model, torch.arange(8).view(2, 4), optimizer=own)["eager"].record
    assert record.status is Status.PASS, record.failure


def test_an_optimizer_with_a_closure_and_a_computed_tensor_are_named() -> None:
    record = measured(net, ROWS[0], mode="training", optimizer=torch.optim.LBFGS)
    assert "closure" in record.failure.message
    model = Of(net, layer := nn.Linear(8, 8))
    vars(layer)["scales"] = [layer.weight * 2]
    record = compare(model, ROWS[0], compilers=["eager"], protocol=FEW)["eager"].record
    assert "parts.0.scales.0" in known(record.failure).message
