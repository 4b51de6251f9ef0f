"""``torchduet.compare``: the Python way in."""

import copy
import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness.loading.own_model_build import Function
from harness.schema import CompilerOptions, Extras, Mode, Protocol, Status
from harness.timing.copies import copied
from runner.errors import UsageError
from runner.store.record_file import read_records
from tests.factories import known
from torchduet import compare

FEW = Protocol(repeat=10, min_sample_s=0.0)
LEAF = torch.ones(2, requires_grad=True)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def test_a_module_is_measured_here(tmp_path: Path) -> None:
    model, inputs, folder = mlp(), torch.randn(32, 8), tmp_path / "run"
    result = compare(model, inputs, compilers=["eager", "dynamo_eager"], protocol=FEW, output_dir=folder)
    assert [r.status for r in result.records] == [Status.PASS, Status.PASS]
    assert read_records(folder / "records.jsonl").records == result.records
    assert result["dynamo_eager"].n == 10
    assert not result.isolated
    assert all(any("not isolated" in note for note in r.notes) for r in result.records)
    assert "Sequential" in str(result)
    assert "Not isolated" in str(result)
    result.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


GLOBAL = mlp()


def _by_closure() -> Callable[[torch.Tensor], torch.Tensor]:
    net = mlp()
    return lambda x: net(x).relu()


def _by_global(x: torch.Tensor) -> torch.Tensor:
    return GLOBAL(x).relu()  # type: ignore[no-any-return]


@pytest.mark.parametrize("function", [_by_global, _by_closure(), mlp().forward])
@pytest.mark.series
def test_a_function_is_measured_with_copies_of_its_modules(function: Callable[..., Any]) -> None:
    before = [p.detach().clone() for p in GLOBAL.parameters()]
    result = compare(function, torch.randn(4, 8), compilers=["eager", "dynamo_eager"], protocol=FEW)
    for name in ("eager", "dynamo_eager"):
        record = result[name].record
        assert (record.status, record.job.case.mode) == (Status.PASS, Mode.TRAINING)
        parity = known(record.parity)
        assert parity.reference == "fp64"
        assert parity.tensors > 4  # output, loss, and the gradients of the module's copy
    assert all(p.grad is None for p in GLOBAL.parameters())
    assert all(map(torch.equal, GLOBAL.parameters(), before))


@pytest.mark.slow
def test_a_function_without_modules_trains_what_its_inputs_ask_for() -> None:
    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) @ y

    x, y = torch.randn(4, 8), torch.randn(8, 3)
    record = compare(product, (x, y), compilers=["dynamo_eager"], protocol=FEW)["dynamo_eager"].record
    assert (record.status, record.job.case.mode) == (Status.PASS, Mode.INFERENCE)
    assert record.job.case.name == "product"
    x.requires_grad_()
    record = compare(product, (x, y), compilers=["dynamo_eager"], protocol=FEW)["dynamo_eager"].record
    assert (record.status, record.job.case.mode) == (Status.PASS, Mode.TRAINING)
    assert known(record.parity).tensors == 3  # output, loss, the gradient of x


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.relu()
    torch._dynamo.graph_break()
    return y + 1


@pytest.mark.slow
def test_what_is_asked_of_compilers_and_beside_is_passed_on() -> None:
    how: dict[str, Any] = {"compilers": ["dynamo_eager"], "mode": "inference", "protocol": FEW}
    result = compare(broken, torch.randn(4, 8), extras=Extras(explain=True), **how)
    (record,) = result.records
    assert record.job.extras.explain
    assert "graph_break" in str(record.metrics["graph_break_reasons"])
    place = f"test_compare.py:{inspect.getsourcelines(broken)[1] + 2}: torch._dynamo.graph_break()"
    assert place in str(result)
    assert place in result._repr_html_()
    strict = compare(broken, torch.randn(4, 8), options=CompilerOptions(nopython=True), **how)
    assert strict.records[0].status is Status.FAIL_TO_RUN


@pytest.mark.parametrize("optimizer", [lambda weights: torch.optim.Adagrad(weights), "torch.optim:Adagrad"])
@pytest.mark.series
def test_a_step_ends_with_the_callers_optimizer(optimizer: Any) -> None:
    result = compare(mlp(), torch.randn(4, 8), compilers=["eager"], protocol=FEW, optimizer=optimizer)
    (record,) = result.records
    assert record.status is Status.PASS
    assert record.job.protocol.optimizer in ("this process:lambda", "torch.optim:Adagrad")
    assert record.parity is not None
    assert record.parity.tensors == 2 + 3 * 4  # output and loss; of four weights: gradient, update, state


# -- what is refused, in one sentence that names the argument ---------------------------------------
MEASURED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"compilers": []}, "compilers: it is empty; give at least one compiler"),
    ({"compilers": [3]}, "compilers: 3 is neither a name nor a function"),
    ({"mode": "dreaming"}, "mode: there is no mode called 'dreaming'"),
    ({"compilers": "egaer"}, "compilers: there is no compiler called 'egaer'; did you mean eager"),
    ({"compilers": lambda: 3}, "compilers: lambda takes (); a compiler takes (graph,"),
    ({"compilers": "nowhere.py:fn"}, "compilers: there is no file 'nowhere.py'"),
    ({"compilers": "nowhere_at_all:fn"}, "compilers: there is no module 'nowhere_at_all' here"),
    ({"protocol": {"repeat": 8}}, "protocol: it is a dict; write protocol=Protocol(repeat=8)"),
    ({"repeat": 8}, "repeat: compare() has no such argument; write protocol=Protocol(repeat=8)"),
    ({"explain": True}, "write extras=Extras(explain=True)"),
    ({"compiler": "eager"}, "there is no argument called 'compiler'; did you mean compilers"),
    ({"compilers": torch.compile}, "torch.compile calls a compiler, but is none; name a compiler"),
    ({"dtype": torch.float64}, "dtype: there is no precision called 'float64'"),
    ({"device": torch.device("meta")}, "device: there is no device called 'meta'"),
    ({"protocol": Protocol(threads=9999)}, "protocol.threads: 9999 is more than the"),
    ({"options": CompilerOptions(inductor_config=("max_autotun=1",))}, "options.inductor_config: ind"),
    ({"protocol": Protocol(ci_width=0.0)}, "protocol.ci_width: '0.0' is not between 0 and 100 %"),
    ({"target": torch.ones(6)}, "target: no loss is given that uses it; give a loss of (output, target)"),
    ({"loss": lambda a, b, c: a}, "loss: it is called as loss(output, target), but its signature is (a,"),
    ({"loss": lambda a: a, "target": torch.ones(1)}, "loss: a target is given, but this loss takes (a)"),
    ({"loss": 3}, "loss: it must be a function of (output, target), not of type int"),
    ({"loss": nn.MSELoss}, "loss: it must be a function of (output, target), not the class MSELoss"),
    ({"dropout": "none"}, "dropout: there is no treatment called 'none'"),
    ({"optimizer": 3}, "optimizer: it must be a name or a function, such as torch.optim.AdamW"),
    ({"optimizer": "lion"}, "optimizer: there is no optimizer called 'lion'"),
    ({"extras": Extras(compile_runs=1)}, "extras.compile_runs: needs a worker process"),
    ({"protocol": Protocol(isolate=True)}, "protocol.isolate: needs a worker process"),
)
NAME = "package.module:make"
BY_NAME = "a model by name has its own; return it from the function"
FROZEN = (
    "model: nothing requires a gradient: all 2 parameters are frozen; unfreeze what is to be trained, "
    "or measure inference"
)


NET = mlp()
HELD = {"net": NET}


class Holder:
    NET = None  # an attribute with the name of a module of this file is not this module

    def __init__(self) -> None:
        self.net = NET

    def another(self, x: Any) -> Any:
        return NET(x)

    __call__ = another

    def call(self, x: Any) -> Any:
        return self.net(x)


HOLDER, BOUND = Holder(), NET.forward


def helper(x: Any) -> Any:
    return NET(x)


SHARING: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("helper", lambda x: helper(x)),
    ("HELD", lambda x: HELD["net"](x)),
    ("HOLDER", lambda x: HOLDER.net(x)),
    ("BOUND", lambda x: BOUND(x)),
    ("NET", HOLDER),
)
"""What a function uses, of which its copies would use the same."""


def test_a_function_has_copies_of_the_modules_of_inner_code_and_of_no_attribute() -> None:
    assert Function(lambda x: [NET(part) for part in x], ()).names == ["NET"]
    assert Function(lambda x: x * len(Holder.NET or ""), ()).names == []
    assert Function(HOLDER.call, ()).names == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x, net=NET: net(x),
        functools.partial(lambda x: NET(x)),
        functools.partial(HOLDER.another),
        HOLDER.another,
        NET.forward,
    ],
)
def test_a_copy_of_a_function_uses_copies_of_the_modules_that_it_finds(function: Callable[..., Any]) -> None:
    x = torch.randn(4, 8)
    expected, twin = function(x), copied(Function(function, ()), {})
    assert torch.equal(twin(x), expected)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert not twin(x).any()
    assert torch.equal(function(x), expected)


def test_a_skeleton_on_meta_is_called_with_the_parameters_that_are_given() -> None:
    """The recipe for an ensemble of torch.func, and its function called without vmap."""
    models = [nn.Linear(8, 4) for _ in range(3)]
    stacked, _ = torch.func.stack_module_state(models)
    skeleton = copy.deepcopy(models[0]).to("meta")

    def single(parameters: Any, x: torch.Tensor) -> Any:
        return torch.func.functional_call(skeleton, parameters, (x,))

    def ensemble(parameters: Any, x: torch.Tensor) -> Any:
        return torch.func.vmap(single, in_dims=(0, None))(parameters, x)

    for function, parameters in ((single, dict(models[0].named_parameters())), (ensemble, stacked)):
        protocol = Protocol(performance=False)
        inputs = (parameters, torch.randn(4, 8))
        (record,) = compare(function, inputs, compilers="eager", protocol=protocol).records
        assert (record.status, record.job.case.mode) == (Status.PASS, Mode.TRAINING)


@pytest.mark.parametrize(
    ("model", "more", "says"),
    [
        *((mlp(), more, says) for more, says in MEASURED),
        (3, {}, "model: it must be a torch.nn.Module or a function, not of type int"),
        (nn.Linear, {}, "model: it must be a torch.nn.Module or a function, not the class Linear"),
        (lambda x: x * LEAF, {}, "model: its tensor LEAF requires a gradient: give it to the function"),
        *((model, {}, f"model: its {name} holds a module or a") for name, model in SHARING),
        (nn.Linear(8, 8).requires_grad_(False), {"mode": "training"}, FROZEN),
        *((NAME, {name: torch.sum}, f"{name}: {BY_NAME}") for name in ("inputs", "loss", "target")),
        (NAME, {"optimizer": lambda _: _}, "optimizer: <lambda> exists in this process only, but a worker"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(model: Any, more: dict[str, Any], says: str) -> None:
    inputs = {} if isinstance(model, str) else {"inputs": torch.randn(4, 8)}
    with pytest.raises(UsageError, match=re.escape(says)):
        compare(model, **{"compilers": "eager", **inputs, **more})
