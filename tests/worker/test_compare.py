"""``torchduet.compare``: the Python way in."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness.schema import CompilerOptions, Extras, Mode, Protocol, Status
from runner.errors import UsageError
from runner.store.record_file import read_records
from tests.factories import known
from torchduet import compare

FEW = Protocol(repeat=10, min_sample_s=0.0)
LEAF = torch.ones(2, requires_grad=True)


class Wrong(nn.Module):
    """Computes something else as soon as it is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        scale = 2.0 if torch.compiler.is_compiling() else 1.0
        return values * self.weight * scale


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def test_a_module_is_measured_here(tmp_path: Path) -> None:
    model, inputs = mlp(), torch.randn(32, 8)
    result = compare(model, inputs, compilers=["eager", "dynamo_eager"], protocol=FEW)
    assert [r.status for r in result.records] == [Status.PASS, Status.PASS]
    assert result["dynamo_eager"].n == 10
    assert not result.isolated
    assert all(any("not isolated" in note for note in r.notes) for r in result.records)
    assert "Sequential" in str(result)
    assert "Not isolated" in str(result)
    result.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_wrong_answer_fails_and_is_kept_on_disk(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    how: dict[str, Any] = {"compilers": ["dynamo_eager"], "mode": "inference", "protocol": FEW}
    result = compare(Wrong(), (torch.randn(4, 8),), output_dir=folder, **how)
    assert result["dynamo_eager"].record.status is Status.FAIL_ACCURACY
    assert read_records(folder / "records.jsonl").records == result.records


@pytest.mark.slow
def test_a_model_by_name_is_isolated(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(8, 4), torch.randn(16, 8)\n", encoding="utf-8"
    )
    result = compare(f"{source}:make", compilers=["eager"], mode="inference", protocol=FEW)
    assert result.isolated
    assert result["eager"].record.status is Status.PASS
    assert "--model=" in result["eager"].record.reproduce


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (3, "model: it must be a torch.nn.Module or a function, not a int"),
        (nn.Linear, "model: it must be a torch.nn.Module or a function, not the class Linear"),
        (lambda x: x * LEAF, "model: its tensor LEAF requires a gradient: give it to the function"),
    ],
)
def test_what_cannot_be_measured_is_refused(model: Any, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        compare(model, torch.randn(2))


GLOBAL = mlp()


def _by_closure() -> Callable[[torch.Tensor], torch.Tensor]:
    net = mlp()
    return lambda x: net(x).relu()


def _by_global(x: torch.Tensor) -> torch.Tensor:
    return GLOBAL(x).relu()  # type: ignore[no-any-return]


@pytest.mark.parametrize("function", [_by_closure(), _by_global, mlp().forward])
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


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"extras": Extras(allocator="jemalloc")}, "extras.allocator"),
        ({"extras": Extras(compile_runs=1)}, "extras.compile_runs"),
        ({"extras": Extras(start_up=1)}, "extras.start_up"),
        ({"extras": Extras(profiler_trace=True)}, "extras.profiler_trace"),
        ({"protocol": Protocol(isolate=True)}, "protocol.isolate"),
        ({"protocol": Protocol(processes=3)}, "protocol.processes"),
        ({"protocol": Protocol(max_memory_bytes=1 << 30)}, "protocol.max_memory_bytes"),
    ],
)
def test_what_a_module_cannot_have_here_is_refused(asked: dict[str, Any], name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}: needs a worker process"):
        compare(mlp(), torch.randn(4, 8), **asked)


class Broken(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.relu()
        torch._dynamo.graph_break()
        return y + 1


@pytest.mark.slow
def test_what_is_asked_of_compilers_and_beside_is_passed_on() -> None:
    how: dict[str, Any] = {"compilers": ["dynamo_eager"], "mode": "inference", "protocol": FEW}
    result = compare(Broken(), torch.randn(4, 8), extras=Extras(explain=True), **how)
    (record,) = result.records
    assert record.job.extras.explain
    assert "graph_break" in str(record.metrics["graph_break_reasons"])
    place = f"test_compare.py:{inspect.getsourcelines(Broken.forward)[1] + 2}: torch._dynamo.graph_break()"
    assert place in str(result)
    assert place in result._repr_html_()
    strict = compare(Broken(), torch.randn(4, 8), options=CompilerOptions(nopython=True), **how)
    assert strict.records[0].status is Status.FAIL_TO_RUN


@pytest.mark.parametrize("optimizer", [lambda weights: torch.optim.Adagrad(weights), "torch.optim:Adagrad"])
@pytest.mark.series
def test_a_step_ends_with_the_callers_optimizer_and_scheduler(optimizer: Any) -> None:
    def decay(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.StepLR(optimizer, 100)

    result = compare(
        mlp(), torch.randn(4, 8), compilers=["eager"], protocol=FEW, optimizer=optimizer, scheduler=decay
    )
    (record,) = result.records
    assert record.status is Status.PASS
    assert record.job.protocol.optimizer in ("this process:lambda", "torch.optim:Adagrad")
    assert record.job.protocol.scheduler == "this process:decay"
    assert record.parity is not None
    assert record.parity.tensors == 2 + 3 * 4  # output and loss; of four weights: gradient, update, state


def test_what_is_wrong_with_the_callers_optimizer_is_a_sentence() -> None:
    x = torch.randn(4, 8)
    record = compare(mlp(), x, compilers=["eager"], protocol=FEW, optimizer=lambda _: 3).records[0]
    assert record.status is Status.EAGER_1ST_RUN_FAIL
    assert record.failure is not None
    assert record.failure.message == (
        "optimizer: its function returned a int, which is no torch.optim.Optimizer"
    )
    with pytest.raises(UsageError, match="optimizer: 3 is neither a name nor a function, such as torch"):
        compare(mlp(), x, optimizer=3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"scheduler: <lambda> exists in this process only, but a worker"):
        compare("package.module:make", scheduler=lambda optimizer: optimizer)
    with pytest.raises(UsageError, match=r"optimizer: there is no optimizer called 'lion'"):
        compare(mlp(), x, optimizer="lion")


@pytest.mark.parametrize("name", ["inputs", "loss", "target"])
def test_a_model_by_name_takes_nothing_of_a_module(name: str) -> None:
    given: dict[str, Any] = {name: torch.sum}
    with pytest.raises(UsageError, match=f"{name}: a model by name has its own; return it from the function"):
        compare("package.module:make", **given)


def test_weights_that_are_all_frozen_cannot_be_trained() -> None:
    model = torch.nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(UsageError, match=r"model: nothing requires .* are frozen; .* mode='inference'"):
        compare(model, torch.ones(2, 2), compilers=["eager"], mode="training")
