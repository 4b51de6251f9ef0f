"""What other projects' compilers are told about the device, with modules in their place."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo  # looks at the real modules, before others take their place
from torch import nn

from harness.backends import load_backend, why_unavailable
from harness.backends.shared import inductor, torchao
from harness.hardware.installed import missing_for_triton
from harness.program import Compiled, Program
from harness.schema import CompilerOptions
from tests.factories import Patch
from tests.worker.planted import inference

GIVEN = torch.arange(8.0).reshape(2, 4)


def program(**options: Any) -> Program:
    """The inference of a layer."""
    torch.manual_seed(0)
    plain = inference(nn.Linear(4, 3), GIVEN).variant().program
    return replace(plain, options=CompilerOptions(**options))


def noting(asked: list[Any]) -> Callable[..., Compiled]:
    """To stand for ``compile_with_dynamo``: adds the options that it is given."""

    def compile_it(*_: object, options: Any = None, **__: object) -> Compiled:
        asked.append(options)
        return Compiled(forward=lambda *_: (None, None), region="forward", compiler_calls=lambda: 1)

    return compile_it


NO_PROVIDER = "this ONNX Runtime has no provider for cuda"


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("cudagraphs", "cpu", "CUDA graphs need a CUDA device"),
        ("tensorrt", "cpu", "TensorRT needs a CUDA device"),
        ("tensorrt", "cuda", None),
        ("openvino", "cuda", "OpenVINO compiles for the CPU here"),
        ("onnxrt", "cuda", f"{NO_PROVIDER} (pip install onnxruntime-gpu for cuda)"),
        ("torchao_int8_dynamic", "cuda", "inductor needs a GPU that Triton supports, and finds none"),
    ],
)
def test_a_compiler_tells_its_devices(monkeypatch: Patch, name: str, kind: str, expected: str | None) -> None:
    """With all packages installed, on a machine without a card."""
    module = SimpleNamespace(get_available_providers=lambda: ["CPUExecutionProvider"])
    for package in ("onnxruntime", "torch_tensorrt"):
        monkeypatch.setitem(sys.modules, package, module)
    monkeypatch.setattr("harness.hardware.installed.find_spec", lambda _: object())
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: object())
    monkeypatch.setattr(inductor, "_triton_works", lambda: False)
    assert why_unavailable(name, kind) == expected


@pytest.mark.parametrize(
    ("compiler", "header", "lacks"),
    [
        ("", True, "a C compiler (apt install gcc, or one named by CC)"),
        ("gcc", False, "{}/Python.h (apt install python3-dev)"),
        ("gcc", True, ""),
    ],
)
def test_triton_builds_its_launcher_with_a_c_compiler(
    monkeypatch: Patch, tmp_path: Path, compiler: str, lacks: str, *, header: bool
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/gcc" if name == compiler else None)
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    if header:
        (tmp_path / "Python.h").touch()
    missing = lacks.format(tmp_path)
    assert missing_for_triton() == missing
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: object())
    monkeypatch.setattr(inductor, "_triton_works", lambda: True)
    says = f"inductor needs Triton, and Triton needs {missing}" if missing else None
    assert why_unavailable("inductor", "cuda") == says


def test_torchao_s_settings_of_inductor_are_of_its_candidate_alone(monkeypatch: Patch) -> None:
    """By itself it sets them, and TF32, for eager and every later candidate, too."""
    asked: list[dict[str, Any]] = []

    def quantize(module: nn.Linear, _: object) -> None:
        module.weight = nn.Parameter(module.weight.detach())

    def config(*, set_inductor_config: bool = True) -> None:
        asked.append({"set": set_inductor_config})

    quantization = SimpleNamespace(quantize_=quantize, Int8WeightOnlyConfig=config)
    monkeypatch.setitem(sys.modules, "torchao", SimpleNamespace(quantization=quantization))
    monkeypatch.setattr(inductor, "compile_with_dynamo", noting(asked))
    given = load_backend("torchao_int8_weight_only")(program(inductor_config=("epilogue_fusion=false",)))
    assert given.approximate
    assert asked == [{"set": False}, {**torchao.RECOMMENDED, "epilogue_fusion": False}]
    assert torchao.RECOMMENDED.keys() <= torch._inductor.config.get_config_copy().keys()


def test_a_mode_with_cuda_graphs_says_where_it_has_none_and_else_proves_them(monkeypatch: Patch) -> None:
    """By the mode and by the user's own setting."""
    monkeypatch.setattr(inductor, "compile_with_dynamo", noting([]))
    names = ("inductor_reduce_overhead", "inductor[mode=reduce-overhead]")
    for name in names:
        shown = name.partition("[")[0]
        assert load_backend(name)(program()).notes == (f"{shown}: CUDA graphs need CUDA; ran without them",)
    proved: list[str] = []

    def prove(_: Program, name: str, compile_it: Callable[[], Compiled]) -> Compiled:
        proved.append(name)
        return compile_it()

    monkeypatch.setattr(inductor, "device_of", lambda _: torch.device("cuda"))
    monkeypatch.setattr(inductor, "with_cuda_graphs", prove)
    assert not any(load_backend(name)(program()).notes for name in names)
    inductor.compile_as(program(), "a setting", settings={"triton.cudagraphs": True})
    inductor.compile_as(program(), "plain")
    load_backend("cudagraphs")(program())
    assert proved == ["inductor_reduce_overhead", "inductor", "a setting", "cudagraphs"]
