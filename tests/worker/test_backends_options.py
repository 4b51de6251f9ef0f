"""What is asked of the compilers beside their names, and what they say about themselves."""

import gc
import re
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from harness.backends import backend_names, backend_of, load_backend, why_unavailable
from harness.backends.settings.in_force import plain_settings, set_from_outside, settings_in_force
from harness.backends.shared import inductor
from harness.backends.shared.contexts import around
from harness.backends.shared.inductor import all_settings, packs_weights, regions_of
from harness.backends.shared.options import inductor_settings, settings_of, settings_of_mode
from harness.backends.shared.torchscript import settled
from harness.counters import graphs_compiled
from harness.probes.compilers import probed
from harness.program import Compiled, Program
from harness.schema import CompilerOptions, Mode
from harness.workload import Workload
from tests.factories import Patch, known
from tests.worker.planted import Block, Of, Trial, inference, opened, results, trial

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def program(mode: Mode = Mode.INFERENCE, **options: Any) -> Program:
    return replace(trial("mlp", mode=mode).variant().program, options=CompilerOptions(**options))


def run(of: Program, forward: Any, args: tuple[Any, ...] | None = None) -> Any:
    with torch.no_grad():
        return forward(of.args if args is None else args, {}, of.target)[1]


# -- inductor's configuration -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("max_autotune=true", True),
        ("triton.cudagraphs=true", True),
        ("cpp.threads=3", 3),
        ("max_autotune_gemm_backends=ATEN,CPP", "ATEN,CPP"),
        ("cpp.simdlen=none", None),
    ],
)
def test_a_setting_has_the_type_that_inductor_wants(pair: str, value: object) -> None:
    settings = inductor_settings([pair])
    assert settings == {pair.partition("=")[0]: value}
    assert type(next(iter(settings.values()))) is type(value)
    with torch._inductor.config.patch(settings):  # it takes it
        pass


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:TypedStorage:UserWarning")
def test_kernels_that_autotuning_chose_are_recorded(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    module = Of(lambda first, second: torch.bmm(first, second).relu())
    inputs = torch.randn(4, 32, 64), torch.randn(4, 64, 32)
    session = opened(lambda: Workload(module=module, args=inputs), Mode.INFERENCE)
    candidates = ("inductor[max_autotune=True]", "inductor")
    tuned, plain = (session.prepare(candidate)[2] for candidate in candidates)
    chosen = str(tuned["autotuned_kernels"])
    assert re.fullmatch(r"bmm \(4x32x64, 4x64x32\): (bmm|cpp_\w+)", chosen)
    assert tuned["kernels_autotuned"] == 1
    assert "autotuned_kernels" not in plain


def test_a_configuration_without_types_takes_those_of_its_values(monkeypatch: Patch) -> None:
    """torch 2.0 has no get_config_copy, and torch before 2.6 no get_type."""
    values = {"max_autotune": False, "threads": -1, "simdlen": None, "backends": "ATEN"}
    monkeypatch.setitem(sys.modules, "old.config", SimpleNamespace(to_dict=lambda: values))
    right = settings_of(["max_autotune=1", "threads=1", "simdlen=none", "backends=1"], "old.config")
    assert str(right) == "{'max_autotune': True, 'threads': 1, 'simdlen': None, 'backends': '1'}"
    with pytest.raises(ValueError, match="old's simdlen takes none, not '256'"):
        settings_of(["simdlen=256"], "old.config", "old")


def test_a_setting_may_have_any_type(monkeypatch: Patch) -> None:
    new = SimpleNamespace(get_config_copy=lambda: {"hooks": 1}, get_type=lambda _: Any | list[str])
    monkeypatch.setitem(sys.modules, "new.config", new)
    assert settings_of(["hooks=[2]"], "new.config") == {"hooks": [2]}


def test_the_modes_of_a_torch_that_does_not_list_them(monkeypatch: Patch) -> None:
    def wrapper(mode: str, *_: object) -> object:
        return SimpleNamespace(config={"max_autotune": mode == "max-autotune"})

    monkeypatch.delattr("torch._inductor.list_mode_options")
    monkeypatch.setattr("torch._TorchCompileInductorWrapper", wrapper)
    assert settings_of_mode("max-autotune") == {"max_autotune": True}
    assert "did you mean max-autotune" in known(why_unavailable("inductor[mode=max-autotun]", "cpu"))


def test_what_a_person_asks_for_goes_over_what_the_mode_sets() -> None:
    asked = program(inductor_config=("triton.cudagraphs=false",), freezing=True)
    settings = all_settings(asked, "max-autotune")
    assert settings["max_autotune"] is True
    assert settings["triton.cudagraphs"] is False
    assert settings["freezing"] is True
    assert "freezing" not in all_settings(program(mode=Mode.TRAINING, freezing=True))


def of_mine(module: nn.Module) -> Any:
    return torch.compile(module)


def test_strict_sets_what_this_torch_has_and_says_what_became_of_the_rest(monkeypatch: Patch) -> None:
    asked: dict[str, Any] = {}

    def noting(given: Program, *_: Any, options: Any, **__: Any) -> Compiled:
        asked.clear()
        asked.update(options)
        return Compiled(forward=given.forward(), region="forward", compiler_calls=lambda: 1)

    monkeypatch.setattr(inductor, "compile_with_dynamo", noting)
    (note,) = load_backend("inductor_strict")(program()).notes
    has = torch._inductor.config.get_config_copy()
    assert asked.keys() <= has.keys()
    assert asked["emulate_precision_casts"] is asked["fallback_random"] is True
    assert (
        "emulate_precision_casts=True, fallback_random=True, cpp.enable_floating_point_contract_flag" in note
    )
    assert "; without effect on cpu: eager_numerics.division_rounding=True, " in note
    assert note.endswith("; not in this torch: numerics") == ("numerics" not in has)
    later = {**has, "numerics": "default", "fallback_random": "another type"}
    monkeypatch.setattr(inductor, "settings_in_force", lambda _: later)
    (note,) = load_backend("inductor_strict")(program()).notes
    assert (asked["numerics"], "fallback_random" in asked) == ("strict", False)
    assert note.startswith("inductor_strict sets numerics=strict, ")
    assert note.endswith("; not in this torch: fallback_random")


@pytest.mark.parametrize(
    ("name", "outside", "constant"),
    [
        ("inductor", {"freezing": True}, True),
        ("inductor[freezing=False]", {"freezing": True}, False),
        ("inductor[freezing=True]", {}, True),
        ("inductor_regional", {"freezing": True}, True),
        ("mine", {"freezing": True}, True),
        ("mine", {}, False),
    ],
)
def test_a_setting_from_outside_is_respected(name: str, outside: dict[str, Any], constant: bool) -> None:
    source = f"{__name__}:of_mine" if name == "mine" else ""
    for mode, freezes in ((Mode.INFERENCE, constant), (Mode.TRAINING, False)):
        with torch._inductor.config.patch(outside):
            assert load_backend(name, source)(program(mode=mode)).constant_weights == freezes


def test_settings_from_outside_are_read_from_torch(monkeypatch: Patch) -> None:
    before = set_from_outside().split(", ")
    changed = {"max_autotune": True, "trace.enabled": True}  # the second changes no code
    with torch._inductor.config.patch(changed), torch._dynamo.config.patch(suppress_errors=True):
        added = [setting for setting in set_from_outside().split(", ") if setting not in before]
    assert added == ["dynamo.suppress_errors=True", "inductor.max_autotune=True"]
    plain_settings.cache_clear()
    monkeypatch.setenv("TORCHINDUCTOR_FREEZING", "1")  # which torch reads once, when it is imported
    assert plain_settings("torch._inductor.config")["freezing"] is False
    settings = {"freezing": True, "allowed": {torch}}  # torch 2.1 cannot copy a setting like the second
    config = SimpleNamespace(_config=settings, get_config_copy=lambda: deepcopy(settings))
    monkeypatch.setitem(sys.modules, "of_2_1", config)
    assert settings_in_force("of_2_1") == {"freezing": True}


def test_autotuning_that_the_models_code_asks_for_is_reported(monkeypatch: Patch) -> None:
    monkeypatch.setattr("harness.backends.shared.inductor.autotuned_from_now", lambda: ["a choice"])
    with torch._inductor.config.patch(max_autotune=True):
        assert load_backend("inductor")(program()).autotuned() == "a choice"


@pytest.mark.slow
def test_settings_in_brackets_are_active_while_candidates_compile(monkeypatch: Patch) -> None:
    seen: list[tuple[Any, ...]] = []

    def looking(graph: torch.fx.GraphModule, inputs: list[Any], **more: Any) -> Any:
        table = torch._inductor.decomposition.select_decomp_table()
        relu_is_decomposed = torch.ops.aten.threshold_backward.default in table
        budget = torch._functorch.config.activation_memory_budget
        seen.append((torch._inductor.config.epilogue_fusion, budget, relu_is_decomposed))
        return graph.forward

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda *a, config_patches=None, **k: (
        torch._inductor.config.patch(config_patches or {})(looking)(*a)
    ))  # fmt: skip
    own = "epilogue_fusion=False,functorch.activation_memory_budget=0.5,decompose.threshold_backward=False"
    for name in (f"inductor[{own}]", "inductor"):
        asked = program()
        run(asked, load_backend(name)(asked).forward)
    assert seen == [(False, 0.5, False), (True, 1.0, True)]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("inductor[cudagraphs=true]", r"no setting called 'cudagraphs'; the closest .*triton\.cudagraphs"),
        ("inductor[max_autotune=maybe]", "inductor's max_autotune takes .*, not 'maybe'"),
        ("inductor[cpp.threads=many]", r"inductor's cpp\.threads takes .*, not 'many'"),
        ("inductor[layout_optimisation=False]", "closest are layout_optimization"),
        ("inductor[mode=max]", "no mode called 'max'; choose from default"),
        ("inductor[decompose.threshold_bakward=False]", "did you mean threshold_backward"),
        ("inductor[fullgraph=False]", "write fullgraph=True"),
        ("aot_eager[freezing=True]", "this compiler does not take 'freezing'"),
        ("aot_eager[dynamo.recompile_limi=1]", "closest are recompile_limit"),
        ("torchscript[freezing=True]", "no settings in brackets"),
    ],
)
def test_a_setting_in_brackets_that_is_none_is_refused(name: str, says: str) -> None:
    assert re.search(says, known(why_unavailable(name, "cpu")))


# -- shapes, breaks, fusers ------------------------------------------------------------------------
@pytest.mark.parametrize("option", ["dynamic_shapes", "dynamic_batch"])
def test_another_batch_is_no_recompilation_where_it_may_change(option: str) -> None:
    given = inference(nn.Linear(8, 4), torch.ones(6, 8)).variant().program
    asked = replace(given, options=CompilerOptions(**cast("Any", {option: True})))
    compiled = load_backend("aot_eager")(asked)
    run(asked, compiled.forward)
    before = graphs_compiled()
    for size in (7, 19, 64):
        assert run(asked, compiled.forward, (torch.randn(size, 8),)).shape == (size, 4)
    assert graphs_compiled() == before
    assert compiled.notes == ()


def test_a_batch_of_one_cannot_be_dynamic_and_a_note_says_so() -> None:
    subject = inference(nn.Linear(4, 4), torch.ones(1, 4)).variant().program
    asked = replace(subject, options=CompilerOptions(dynamic_batch=True))
    (note,) = load_backend("aot_eager")(asked).notes
    assert note == "aot_eager: --dynamic-batch-only was not used: torch specializes on a batch of one"


@pytest.mark.parametrize("name", ["torchscript", "dynamo_ts", "aot_ts", "aot_ts_mincut"])
def test_nvfuser_is_refused_with_where_it_went(name: str) -> None:
    with pytest.raises(RuntimeError, match=r"removed NVFuser from TorchScript.* thunder"):
        load_backend(name)(program(fuser="nvfuser"))


def test_graphs_of_a_torch_without_lazy_ones_are_scripted(monkeypatch: Patch) -> None:
    graph = torch.fx.symbolic_trace(nn.ReLU())
    monkeypatch.setitem(sys.modules, "torch.fx._lazy_graph_module", None)
    assert torch.equal(settled(graph)(torch.tensor([-1.0, 1.0])), torch.tensor([0.0, 1.0]))


def test_a_context_round_the_step_holds_in_its_forward_and_its_backward() -> None:
    inside = [False]
    seen: list[bool] = []

    @contextmanager
    def context() -> Iterator[None]:
        inside[0] = True
        yield
        inside[0] = False

    class Looks(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            seen.append(inside[0])
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradient: torch.Tensor) -> torch.Tensor:
            seen.append(inside[0])
            return gradient[0]

    subject = trial("mlp")
    variant = subject.variant()
    loss = known(variant.program.loss)
    of = replace(variant.program, loss=lambda output, target: cast("Any", Looks).apply(loss(output, target)))
    variant.use(around(of.forward(), context, calls=2))
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            last = weakref.ref(variant.step()[0])
            assert last() is None  # no cycle keeps the graph alive until somebody collects it
    finally:
        gc.enable()
    assert seen == [True, True] * 2 + [False, False]
    eager = results(subject.variant())
    mine = results(variant)
    assert all(torch.equal(mine[name], eager[name]) for name in eager)


# -- regions -------------------------------------------------------------------------------------------
class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList([Block() for _ in range(3)])
        self.tail = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        y: torch.Tensor = self.tail(x)
        return y


def test_regions_are_the_repeated_blocks_or_else_the_children() -> None:
    stack = Stack()
    assert regions_of(stack) == list(stack.blocks)
    plain = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    assert regions_of(plain) == list(plain)
    assert regions_of(nn.Linear(2, 2)) == []


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo looks, and means nothing by it
def test_equal_blocks_are_compiled_once(monkeypatch: Patch) -> None:
    real = torch.compile
    monkeypatch.setattr("torch.compile", lambda f, backend, **more: real(f, backend="aot_eager", **more))
    work = Workload(module=Stack(), args=(torch.randn(5, 8),), loss=lambda output, _: output.square().mean())
    subject = Trial(workload=work, dtype="float32", mode=Mode.TRAINING)
    variant, compiled = subject.compiled(load_backend("inductor_regional"))
    assert subject.wrong(variant) == []
    assert (compiled.region, compiled.compiler_calls()) == ("submodules", 1)
    assert compiled.notes == ("inductor_regional: 3 submodules compiled (Block)",)


# -- what can be used -----------------------------------------------------------------------------------
def test_any_name_that_torch_knows_is_a_compiler() -> None:
    asked = program()
    compiled = load_backend("aot_eager_default_partitioner")(asked)
    run(asked, compiled.forward)
    assert compiled.compiler_calls() == 1
    assert "aot_eager_default_partitioner" not in backend_names()
    assert "registered with torch.compile" in backend_of("aot_eager_default_partitioner").what
    assert why_unavailable("aot_eager_default_partitioner", "cpu") is None


@pytest.mark.parametrize("name", backend_names())
def test_every_compiler_has_a_line_of_its_own_and_known_modes(name: str) -> None:
    assert backend_of(name).what.endswith(".")
    assert set(backend_of(name).modes) <= {mode.value for mode in Mode}


def test_inductor_without_a_cpp_compiler_says_so(monkeypatch: Patch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    for name in ("inductor", "aot_inductor", "inductor_regional"):
        why = known(why_unavailable(name, "cpu"))
        assert "needs a C++ compiler" in why


@pytest.mark.parametrize(
    ("name", "install"),
    [("onnxrt", "onnxruntime onnx onnxscript"), ("torchao_int8_dynamic", "torchao"), ("tvm", "apache-tvm")],
)
def test_a_missing_package_and_its_name_are_told(name: str, install: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr("harness.hardware.installed.find_spec", lambda _: None)
    assert known(why_unavailable(name, "cpu")).endswith(f" is not installed (pip install {install})")


@pytest.mark.parametrize(
    "name", ["export", "aot_inductor", "onnxrt", "openvino", "tvm", "inductor_compiled_autograd"]
)
def test_a_torch_that_is_too_old_is_named(name: str, monkeypatch: Patch) -> None:
    monkeypatch.delattr("torch.export.Dim.AUTO")
    monkeypatch.delattr("torch._dynamo.compiled_autograd._enable")
    says = f"needs torch 2.6 or later; this is torch {torch.__version__}"
    assert known(why_unavailable(name, "cpu")).endswith(says)


def test_a_package_that_does_not_import_is_no_use(monkeypatch: Patch) -> None:
    monkeypatch.setattr("harness.hardware.installed.find_spec", lambda _: object())
    monkeypatch.setitem(sys.modules, "thunder", None)
    why = known(why_unavailable("thunder", "cpu"))
    assert why.startswith("thunder is installed, but cannot be imported with this torch: ")


def test_the_probe_tells_of_those_named_and_of_nobody_else() -> None:
    names = ["cudagraphs", "aot_ts"]
    answers = probed(["cpu", *names])
    assert list(answers) == names
    assert answers["cudagraphs"]["why"] == "CUDA graphs need a CUDA device"
    assert (answers["aot_ts"]["why"], answers["aot_ts"]["modes"]) == (None, [])


def test_weights_that_torch_2_0_packs_without_being_asked_are_constants() -> None:
    """Found by parity on other weights: inductor of torch 2.0 goes on with the first weights."""
    of_2_0 = SimpleNamespace(cpp=SimpleNamespace(weight_prepack=True))
    later = SimpleNamespace(cpp=of_2_0.cpp, freezing=False)
    assert packs_weights(program(), of_2_0)
    assert not packs_weights(program(mode=Mode.TRAINING), of_2_0)
    assert not packs_weights(program(), later)
    assert not packs_weights(program(), SimpleNamespace(cpp=SimpleNamespace()))
    assert not packs_weights(program())
