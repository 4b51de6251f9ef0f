"""``torchduet.compare`` as a notebook uses it: what it takes, what its result shows, what it leaves alone."""

from __future__ import annotations

import base64
import os
import random
import re
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from harness import devices
from harness.schema import Protocol, Status
from runner.errors import UsageError
from tests.factories import Capture, Patch, known
from tests.worker.planted import Of
from tests.worker.test_compare import mlp
from torchduet import Result, caller, compare

FEW = Protocol(repeat=6, min_sample_s=0.0)
QUICK = Protocol(performance=False)


def as_it_is(graph: torch.fx.GraphModule, example_inputs: object) -> Callable[..., Any]:
    return graph.forward


def refuses(graph: torch.fx.GraphModule, example_inputs: object) -> Callable[..., Any]:
    raise RuntimeError("no kernel for <b>relu</b>")


@pytest.fixture(scope="module")
def timed() -> Result:
    compilers: list[Any] = [as_it_is, "eager", refuses]
    return compare(mlp(), torch.randn(4, 8), compilers=compilers, mode="inference", protocol=FEW)


def test_torchs_own_words_for_precision_and_device_and_no_picture_without_times() -> None:
    torch.manual_seed(0)  # another model's mean may be so near to zero that it cannot be judged
    asked: dict[str, Any] = {"dtype": torch.bfloat16, "device": torch.device("cpu"), "protocol": QUICK}
    result = compare(mlp(), torch.randn(4, 8), compilers="eager", **asked)
    (record,) = result.records
    assert (record.status, record.candidate) == (Status.PASS, "eager")
    assert (record.job.dtype, record.job.device) == ("bfloat16", "cpu")
    assert "<img" not in result._repr_html_()
    with pytest.raises(ValueError, match="nothing was timed"):
        result.plot()


def test_functions_of_the_notebook_are_compilers_and_are_called() -> None:
    called: list[int] = []

    def counted(graph: torch.fx.GraphModule, example_inputs: object) -> Callable[..., Any]:
        called.append(len(graph.graph.nodes))
        return graph.forward

    def traced(module: nn.Module) -> nn.Module:
        return torch.fx.symbolic_trace(module)

    def eager(module: nn.Module) -> nn.Module:
        return module

    def number(graph: torch.fx.GraphModule, example_inputs: object) -> int:
        return 3

    chosen: list[Any] = [counted, traced, eager, counted, number]
    result = compare(mlp(), torch.randn(4, 8), compilers=chosen, mode="inference", protocol=QUICK)
    assert {r.candidate: r.status for r in result.records} == {
        "counted": Status.PASS,
        "traced": Status.PASS,
        "eager-2": Status.NOT_COMPILED,  # gave the module back; is not the control
        "number": Status.FAIL_TO_RUN,
    }
    assert called
    why = known(result["number"].record.failure).message
    assert "number returned a int; a compiler returns what is called" in why


@pytest.mark.slow
def test_a_function_in_a_file_is_a_compiler_here_and_in_a_worker(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "import torch\n"
        "def make():\n    return torch.nn.Linear(8, 4), torch.randn(4, 8)\n"
        "def backend(graph, inputs):\n    return graph.forward\n"
    )
    here = compare(mlp(), torch.randn(4, 8), compilers=f"{path}:backend", protocol=QUICK)
    there = compare(f"{path}:make", compilers=f"{path}:backend", protocol=FEW)
    for result in (here, there):
        assert result["own.backend"].record.status is Status.PASS
    assert (here.isolated, there.isolated, there["own.backend"].n) == (False, True, 6)
    command = there.records[0].reproduce
    assert f"--model={path}:make" in command
    assert f"--compilers={path}:backend" in command
    with pytest.raises(UsageError, match=r"compilers: .* has no function 'nothing'"):
        compare(f"{path}:make", compilers=f"{path}:nothing", protocol=QUICK)

    def local(graph: torch.fx.GraphModule, example_inputs: object) -> Callable[..., Any]:
        return graph.forward

    with pytest.raises(UsageError, match="compilers: local exists in this process only"):
        compare(f"{path}:make", compilers=local, protocol=QUICK)


# -- the result ---------------------------------------------------------------
def test_a_result_is_a_sequence_of_comparisons_with_names(timed: Result) -> None:
    assert len(timed) == 3
    assert [c.compiler for c in timed] == ["as_it_is", "eager", "refuses"]
    assert timed.compilers == ("as_it_is", "eager (A/A)", "refuses")
    assert timed["eager (A/A)"] == timed["eager"]
    assert "as_it_is" in timed
    assert "inductor" not in timed
    with pytest.raises(KeyError, match="no compiler 'inductor' in this result; it has as_it_is, eager"):
        timed["inductor"]
    own, refused = timed["as_it_is"], timed["refuses"]
    assert re.fullmatch(r"as_it_is: pass, .*x.*, compiled in .* s", str(own))
    assert (own.status, own.passed, own.compile_s) == (Status.PASS, True, own.value("compilation_latency_s"))
    assert (refused.status, refused.passed, refused.compile_s) == (Status.FAIL_TO_RUN, False, None)


def test_html_has_table_and_picture_and_loads_nothing(timed: Result) -> None:
    html = timed._repr_html_()
    assert html.count("<tr>") == 4
    assert "eager (A/A)" in html
    assert "no kernel for &lt;b&gt;relu&lt;/b&gt;" in html
    (picture,) = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    assert base64.b64decode(picture).startswith(b"\x89PNG")
    assert "http" not in html
    assert 'style="max-width: 100%" src=' in html
    assert "<li>Not isolated: measured in the calling process" in html


class Raises(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        print("forward is called")
        raise RuntimeError("this model cannot run")


def test_a_failure_is_one_sentence_and_names_no_missing_file(capfd: Capture) -> None:
    result = compare(Raises(), torch.randn(4, 8), compilers="eager", protocol=FEW)
    printed = capfd.readouterr()
    assert "Traceback" not in printed.out + printed.err
    assert "forward is called" not in printed.out
    for text in (str(result), repr(result), result._repr_html_()):
        assert "this model cannot run" in text
        assert not re.search(r"output\.log|report\.md|CSV|records\.jsonl|--[a-z]", text)
    assert "eager_1st_run_fail (RuntimeError: this model cannot run)" in repr(result)


def test_with_a_folder_the_log_is_kept_and_named(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = compare(Raises(), torch.randn(4, 8), compilers="eager", protocol=FEW, output_dir=out)
    log = (out / known(known(result.records[0].failure).log)).read_text()
    assert "forward is called" in log
    assert "Traceback" in log


# -- progress -----------------------------------------------------------------
@pytest.mark.slow
def test_progress_in_plain_lines(capsys: Capture) -> None:
    compare(mlp(), torch.randn(4, 8), compilers=[refuses, "eager"], protocol=FEW, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("    refuses: fail_to_run in phase compile: BackendCompilerFailed: ")
    assert re.fullmatch(r"    eager [\d.]+x \[.*\] \w+, pass", lines[1])
    compare(mlp(), torch.randn(4, 8), compilers="eager", protocol=FEW)
    assert capsys.readouterr().err == ""  # neither terminal nor notebook


class Display:
    """Stands for IPython's: keeps what a cell's output was."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def __call__(self, data: dict[str, str], **_: object) -> Display:
        self.shown.append(data["text/plain"])
        return self

    update = __call__


@pytest.mark.slow
def test_progress_in_a_notebook_is_one_output_that_changes(monkeypatch: Patch) -> None:
    display = Display()
    python: Any = types.ModuleType("IPython")
    python.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    python.display = types.SimpleNamespace(display=display)
    monkeypatch.setitem(sys.modules, "IPython", python)
    compare(mlp(), torch.randn(4, 8), compilers="eager", mode="inference", protocol=FEW)
    assert "Sequential inference float32  compile eager" in display.shown
    assert any("round 6  eager " in text for text in display.shown)
    assert re.fullmatch(r"eager [\d.]+x \[.*\] \w+, pass", display.shown[-1])
    assert len(display.shown) < 20
    before = len(display.shown)
    compare(mlp(), torch.randn(4, 8), compilers="eager", protocol=QUICK, progress=False)
    assert len(display.shown) == before


# -- what belongs to the caller -----------------------------------------------
def settings() -> list[object]:
    backends = torch.backends
    return [
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(),
        backends.cudnn.benchmark,
        backends.cudnn.deterministic,
        backends.cudnn.allow_tf32,
        getattr(backends.cuda.matmul, "fp32_precision", None),
        getattr(getattr(backends.cudnn, "conv", None), "fp32_precision", None),
        backends.cuda.matmul.allow_tf32,
        torch.get_float32_matmul_precision(),
        Path.cwd(),
        sys.path.copy(),
        os.environ.copy(),
        sys.getrecursionlimit(),
        list(warnings.filters),
    ]


def meddles(values: torch.Tensor, linear: nn.Linear) -> Any:
    """Changes what belongs to the process, as a careless model does."""
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    os.chdir("/")
    sys.path.insert(0, "/mine")
    os.environ["MINE"] = "1"
    sys.setrecursionlimit(sys.getrecursionlimit() + 1)
    warnings.simplefilter("ignore")
    random.random()
    np.random.rand()  # noqa: NPY002 - the global generator is meant
    return linear(values)


@pytest.fixture
def unusual() -> Iterator[None]:
    """A caller with settings of its own."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.set_default_dtype(torch.float64)
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.set_grad_enabled(False)
    yield
    torch.set_grad_enabled(True)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    torch.backends.cudnn.deterministic = False
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("unusual")
def test_the_callers_settings_and_generators_are_as_before() -> None:
    model, inputs = Of(meddles, nn.Linear(8, 4)).float(), torch.randn(4, 8, dtype=torch.float32)
    before = settings()
    python, of_numpy, of_torch = random.getstate(), np.random.get_state(), torch.random.get_rng_state()  # noqa: NPY002
    protocol = Protocol(repeat=6, min_sample_s=0.0, threads=1)
    result = compare(model, inputs, compilers="eager", mode="training", protocol=protocol)
    assert result["eager"].record.status is Status.PASS, result
    assert settings() == before
    assert random.getstate() == python
    assert repr(np.random.get_state()) == repr(of_numpy)  # noqa: NPY002
    assert torch.equal(torch.random.get_rng_state(), of_torch)


IN_A_NEW_PROCESS = """
import random, sys, warnings
import torch
import torchduet
before = random.getstate(), sys.path.copy(), list(warnings.filters)
how = {"compilers": "eager", "protocol": torchduet.Protocol(performance=False), "progress": True}
result = torchduet.compare(*MODEL, **how)
print(result, result.frame())
assert (random.getstate(), sys.path, list(warnings.filters)) == before
"""


@pytest.mark.slow
@pytest.mark.parametrize("model", ["torch.nn.Linear(4, 4), torch.ones(2, 4)", "SOURCE,"])
def test_imports_and_displays_change_nothing_of_the_callers(model: str, tmp_path: Path) -> None:
    """Libraries draw random numbers and add filters when they are imported, which happens once a process."""
    file = tmp_path / "mine.py"
    file.write_text("import torch\ndef make():\n    return torch.nn.Linear(4, 4), torch.ones(2, 4)\n")
    program = IN_A_NEW_PROCESS.replace("MODEL", f"({model})").replace("SOURCE", repr(f"{file}:make"))
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


def test_a_setting_that_cannot_be_put_back_costs_no_other(monkeypatch: Patch) -> None:
    """As after a broken device: its generator cannot be restored. Its memory is given back in any case."""

    def fail() -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    emptied: list[str] = []
    monkeypatch.setattr(devices, "remember", lambda: fail)
    monkeypatch.setattr(devices.Cuda, "in_use", lambda _: True)
    monkeypatch.setattr(devices.Cuda, "empty_cache", lambda _: emptied.append("cuda"))
    before = settings()
    with caller.left_as_it_was():
        torch.backends.cudnn.deterministic = True
    assert settings() == before
    assert emptied == ["cuda"]


def test_inside_autocast_and_inference_mode_plain_torch_is_measured() -> None:
    model, inputs = mlp(), torch.randn(4, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        result = compare(model, inputs, compilers="eager", mode="training", protocol=QUICK)
        assert torch.is_autocast_enabled("cpu")
    (record,) = result.records
    assert record.status is Status.PASS
    assert known(known(record.parity).worst).eager_rmse < 1e-5  # float32 has 1e-7, bfloat16 1e-3


def test_the_module_is_as_before() -> None:
    model = mlp().eval()
    model[0].weight.requires_grad_(False)  # type: ignore[index]
    model(torch.randn(4, 8)).sum().backward()
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    values = [p.detach().clone() for p in model.parameters()]
    compare(model, torch.randn(4, 8), compilers="eager", mode="training", protocol=QUICK)
    assert not model.training
    assert not next(model.parameters()).requires_grad
    for parameter, gradient, value in zip(model.parameters(), gradients, values, strict=True):
        assert torch.equal(parameter, value)
        assert (parameter.grad is None) == (gradient is None)
        assert gradient is None or (parameter.grad is not None and torch.equal(parameter.grad, gradient))
