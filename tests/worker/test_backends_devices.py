"""What other projects' compilers are told about the device, with modules in their place."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo  # looks at the real modules, before others take their place
from torch import nn

from harness import devices
from harness.backends import load_backend, onnxrt, tensorrt, tvm, why_unavailable
from harness.backends.shared import captured, inductor, torchao, torchscript
from harness.hardware.installed import missing_for_triton
from harness.precision import precision, settle
from harness.program import Compiled, Program
from harness.schema import CompilerOptions
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


@pytest.mark.parametrize(
    ("name", "place", "provider"),
    [
        ("cpu", ("made", "cpu", 0), ("CPUExecutionProvider", {})),
        *(
            (name, ("made", "cuda", at), ("CUDAExecutionProvider", {"device_id": f"{at}", "use_tf32": "0"}))
            for at, name in enumerate(("cuda", "cuda:1"))
        ),
    ],
)
def test_onnx_runtime_leaves_its_results_on_the_device(
    monkeypatch: pytest.MonkeyPatch, name: str, place: tuple[str, str, int], provider: tuple[str, object]
) -> None:
    subject = program()
    given, places, calls = list[torch.Tensor](), list[object](), list[str]()
    binding = SimpleNamespace(
        bind_ortvalue_input=lambda name, value: given.append(value),
        bind_output=lambda *place: places.append(place),
        get_outputs=lambda: [subject.module(*given).detach()],
    )

    def session(path: str, options: object, providers: list[Any]) -> SimpleNamespace:
        assert providers == [provider]
        return SimpleNamespace(
            get_providers=lambda: [provider[0]],
            get_inputs=lambda: [SimpleNamespace(name="x")],
            get_outputs=lambda: [SimpleNamespace(name="made")],
            io_binding=lambda: binding,
            run_with_iobinding=lambda _: calls.append("run"),
        )

    module = SimpleNamespace(
        SessionOptions=lambda: SimpleNamespace(add_session_config_entry=lambda *_: None),
        InferenceSession=session,
        OrtValue=SimpleNamespace(from_dlpack=lambda tensor: tensor),
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    monkeypatch.setattr(torch.onnx, "export", lambda *_, **__: SimpleNamespace(save=lambda *_, **__: None))
    monkeypatch.setattr(captured, "device_of", lambda _: name)
    kind = type(devices.named(name))
    monkeypatch.setattr(kind, "synchronize", lambda _: calls.append("wait"))
    compiled = onnxrt.compile(subject)
    _, output = compiled.forward((GIVEN,), {}, None)
    assert torch.equal(output, subject.module(GIVEN))
    assert places == [place]
    assert calls == ["wait", "run"]


def test_onnx_runtime_that_fell_back_to_the_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    session = SimpleNamespace(get_providers=lambda: ["CPUExecutionProvider"])
    module = SimpleNamespace(InferenceSession=lambda *_, **__: session)
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    with pytest.raises(RuntimeError, match="could not use its CUDAExecutionProvider"):
        onnxrt._session("model.onnx", None, "CUDAExecutionProvider", devices.named("cuda"))


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_tvm_compiles_for_the_device_that_is_current(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    subject, seen = program(), list[object]()

    def machine(built: object, device: object) -> dict[str, Callable[..., list[torch.Tensor]]]:
        seen.extend([built, device])
        return {"main": lambda *given: [subject.module(*given).detach()]}

    relax = SimpleNamespace(VirtualMachine=machine)
    module = SimpleNamespace(
        cuda=lambda number: ("cuda", number),
        cpu=lambda number: ("cpu", number),
        target=SimpleNamespace(Target=SimpleNamespace(from_device=nullcontext)),
        compile=lambda model, target: ("built for", target.enter_result),
        runtime=SimpleNamespace(from_dlpack=lambda tensor: tensor),
        relax=relax,
    )
    frontend = SimpleNamespace(from_exported_program=lambda _: "model")
    monkeypatch.setitem(sys.modules, "tvm", module)
    monkeypatch.setitem(sys.modules, "tvm.relax", relax)
    monkeypatch.setitem(sys.modules, "tvm.relax.frontend", SimpleNamespace(torch=frontend))
    monkeypatch.setitem(sys.modules, "tvm.relax.frontend.torch", frontend)
    monkeypatch.setattr(captured, "device_of", lambda _: SimpleNamespace(type=kind))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setenv(tvm.SPINS, "1")
    _, output = tvm.compile(subject).forward((GIVEN,), {}, None)
    assert torch.equal(output, subject.module(GIVEN))
    device = ("cuda", 3) if kind == "cuda" else ("cpu", 0)
    assert seen == [("built for", device), device]


NO_PROVIDER = "this ONNX Runtime has no provider for cuda"


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("cudagraphs", "cpu", "CUDA graphs need a CUDA device"),
        ("cudagraphs", "cuda", None),
        ("tensorrt", "cpu", "TensorRT needs a CUDA device"),
        ("tensorrt", "cuda", None),
        ("openvino", "cpu", None),
        ("openvino", "cuda", "OpenVINO compiles for the CPU here"),
        ("onnxrt", "cpu", None),
        ("onnxrt", "cuda", f"{NO_PROVIDER} (pip install onnxruntime-gpu for cuda)"),
        ("thunder", "cuda", None),
        ("tvm", "cuda", None),
        ("torchao_int8_dynamic", "cuda", "inductor needs a GPU that Triton supports, and finds none"),
        ("eager", "cuda", None),
    ],
)
def test_a_compiler_says_which_devices_it_has(
    monkeypatch: pytest.MonkeyPatch, name: str, kind: str, expected: str | None
) -> None:
    """With all packages installed, on a machine without a card."""
    module = SimpleNamespace(get_available_providers=lambda: ["CPUExecutionProvider"])
    for package in ("onnxruntime", "torch_tensorrt", "thunder", "tvm"):
        monkeypatch.setitem(sys.modules, package, module)
    monkeypatch.setattr("harness.backends.shared.installed.find_spec", lambda _: object())
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: object())
    monkeypatch.setattr(inductor, "_triton_works", lambda: False)
    assert why_unavailable(name, kind) == expected


def test_tensorrt_uses_tf32_where_the_precision_does(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setitem(sys.modules, "torch_tensorrt", SimpleNamespace())
    monkeypatch.setattr(tensorrt, "compile_with_dynamo", noting(seen))
    for name in ("float32", "tf32"):
        settle(torch.device("cpu"))
        with precision(name, "cuda").surroundings():
            tensorrt.compile(program())
    assert [options["disable_tf32"] for options in seen] == [True, False]


@pytest.mark.parametrize(
    ("compiler", "header", "expected"),
    [
        (False, True, "a C compiler (apt install gcc, or one named by CC)"),
        (True, False, "{}/Python.h (apt install python3-dev)"),
        (True, True, ""),
    ],
)
def test_triton_builds_its_launcher_with_a_c_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, expected: str, *, compiler: bool, header: bool
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/gcc" if compiler and name == "gcc" else None)
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    if header:
        (tmp_path / "Python.h").touch()
    missing = expected.format(tmp_path)
    assert missing_for_triton() == missing
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: object())
    monkeypatch.setattr(inductor, "_triton_works", lambda: True)
    says = f"inductor needs Triton, and Triton needs {missing}" if missing else None
    assert why_unavailable("inductor", "cuda") == says


def test_torchao_s_settings_of_inductor_are_of_its_candidate_alone(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_mode_with_cuda_graphs_says_where_it_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor, "compile_with_dynamo", noting([]))
    name = "inductor_reduce_overhead"
    assert load_backend(name)(program()).notes == (f"{name}: CUDA graphs need CUDA; ran without them",)
    asked = load_backend("inductor[mode=reduce-overhead]")(program()).notes
    assert asked == ("inductor: CUDA graphs need CUDA; ran without them",)
    monkeypatch.setattr(inductor, "device_of", lambda _: torch.device("cuda"))
    monkeypatch.setattr(inductor, "with_cuda_graphs", lambda program, name, compile_it: compile_it())
    assert load_backend(name)(program()).notes == ()


def test_a_fuser_is_one_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """NNC needs LLVM on a CPU alone."""
    seen: list[str] = []

    @contextmanager
    def fuser(name: str) -> Iterator[None]:
        seen.append(name)
        yield

    monkeypatch.setattr(torch.jit, "fuser", fuser)
    monkeypatch.setattr(torch._C, "_llvm_enabled", lambda: False)
    subject = program(fuser="nnc")
    with pytest.raises(RuntimeError, match="built without LLVM"):
        torchscript.with_fuser(subject.forward(), subject)
    parameter = SimpleNamespace(is_cuda=True)
    monkeypatch.setattr(subject.module, "parameters", lambda: iter([parameter]))
    torchscript.with_fuser(subject.forward(), subject)((GIVEN,), {}, None)
    assert seen == ["fuser1"]
