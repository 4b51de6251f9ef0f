"""The backends that use inductor."""

from __future__ import annotations

import importlib.util
import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from harness.backends.settings.in_force import settings_in_force
from harness.backends.settings.own_settings import OF_INDUCTOR
from harness.backends.shared.contexts import SETTLING_CALLS, inside
from harness.backends.shared.dynamo import compile_with_dynamo, dynamo_options
from harness.backends.shared.options import (
    DYNAMO,
    device_of,
    inductor_settings,
    settings_of_mode,
    what_became_of,
)
from harness.counters import counting_graphs, cudagraph_copied_inputs, cudagraph_skips, latest_cudagraph_skip
from harness.devices import of
from harness.hardware.installed import any_program, missing_for_triton
from harness.program import Compiled, Program, own_code
from harness.tensors import named_tensors

TAKES = (*DYNAMO, "inductor_config", "freezing")
SETTINGS = OF_INDUCTOR
CONFIG = "torch._inductor.config"


def compile_as(
    program: Program,
    name: str,
    *,
    mode: str | None = None,
    settings: Mapping[str, Any] | None = None,
    where_known: Mapping[str, Any] | None = None,
) -> Compiled:
    """inductor in one of its modes, with these settings; the user's settings override them.

    ``where_known``: further settings, of which this torch may lack some. A note tells what became of each.
    """
    outside = settings_in_force(CONFIG)
    known = {key: v for key, v in (where_known or {}).items() if type(outside.get(key)) is type(v)}
    chosen = all_settings(program, mode, {**(settings or {}), **known})
    takes = TAKES if not program.training else (*DYNAMO, "inductor_config")

    def compile_it() -> Compiled:
        return compile_with_dynamo(program, "inductor", name=name, takes=takes, options=chosen or None)

    in_force = {**outside, **chosen}
    choices = (
        autotuned_from_now() if in_force.get("max_autotune") or in_force.get("max_autotune_gemm") else []
    )
    asked = bool(in_force.get("triton.cudagraphs"))
    replays = asked and why_no_cudagraphs(device_of(program).type) is None
    compiled = with_freezing(
        program, with_cuda_graphs(program, name, compile_it) if replays else compile_it(), chosen
    )
    notes = [*compiled.notes]
    if where_known:
        notes.append(f"{name} {what_became_of(where_known, known, device_of(program).type)}")
    if asked and not replays:
        notes.append(f"{name}: CUDA graphs need CUDA; ran without them")
    if program.training and in_force.get("freezing"):
        notes.append(f"{name}: freezing was not used: torch freezes weights without gradients only")
    compiled = replace(compiled, autotuned=lambda: "\n".join(choices), notes=tuple(notes))
    return replace(compiled, constant_weights=True) if packs_weights(program) else compiled


def autotuned_from_now() -> list[str]:
    """A list to which torch adds each choice of autotuning: ``bmm (4x32x64, 4x64x32): cpp_Gemm_0``."""
    from torch._inductor import select_algorithm

    choices: list[str] = []

    def chosen(times: Mapping[Any, float], operation: str, inputs: Sequence[Any], *_: Any) -> None:
        shapes = ", ".join("x".join(map(str, tensor.get_size())) for tensor in inputs)
        if times:
            choices.append(f"{operation} ({shapes}): {min(times, key=lambda choice: times[choice]).name}")

    listen = getattr(select_algorithm, "add_feedback_saver", None)  # torch 2.3
    if listen is not None:
        listen(chosen)
    return choices


def with_cuda_graphs(program: Program, name: str, compile_it: Callable[[], Compiled]) -> Compiled:
    """The result of ``compile_it``, which counts as compiled only if a CUDA graph was recorded.

    A graph that torch skips runs as usual and is not replayed, and torch only counts the skipped ones. So the
    proof is a recorded graph: torch counts the inputs of these, and their memory is in private pools.
    """
    device = of(device_of(program))
    skipped, copied, pools = cudagraph_skips(), cudagraph_copied_inputs(), device.pool_bytes() or 0
    compiled = compile_it()

    def skips() -> int:
        return cudagraph_skips() - skipped

    def recorded() -> bool:
        return cudagraph_copied_inputs() > copied or (device.pool_bytes() or 0) > pools

    def why_nothing() -> str:
        if recorded() or not skips():
            return compiled.why_nothing()
        return "; ".join(part for part in ("every CUDA graph was skipped", latest_cudagraph_skip()) if part)

    def late_notes() -> tuple[str, ...]:
        notes = list(compiled.late_notes())
        if skips():
            reason = latest_cudagraph_skip()
            because = f" (the latest: {reason})" if reason else ""
            notes.append(f"{name}: {skips()} graphs did not become CUDA graphs{because}")
        count, given = cudagraph_copied_inputs() - copied, (program.args, program.kwargs, program.target)
        inputs = 1 + sum(1 for _ in named_tensors(given, "given"))  # 1: the gradient of the loss
        if count > 2 * inputs:  # forward and backward
            notes.append(f"{name}: every replay copies {count} tensors, the weights among them")
        return tuple(notes)

    return replace(
        compiled,
        replays=True,
        compiler_calls=lambda: compiled.compiler_calls() if recorded() or not skips() else 0,
        late_notes=late_notes,
        why_nothing=why_nothing,
    )


def with_freezing(program: Program, compiled: Compiled, settings: Mapping[str, Any]) -> Compiled:
    """Freezing needs a setting that Dynamo reads from the global configuration, where it may be already."""
    outside = settings_in_force(CONFIG).get("freezing", False)
    frozen = bool(settings.get("freezing", outside))
    if program.training:  # torch freezes without gradients only
        return compiled
    if frozen != outside:
        context = partial(torch._inductor.config.patch, freezing=frozen)
        compiled = inside(compiled, context, calls=SETTLING_CALLS)
    return replace(compiled, constant_weights=frozen or compiled.constant_weights)


def packs_weights(program: Program, config: Any = None) -> bool:
    """Whether inductor copies the weights of products when it compiles, without being asked to.

    torch 2.0 does so on a CPU in inference. From torch 2.1, ``freezing`` asks for it. ``config``: inductor's.
    """
    if config is None:
        from torch._inductor import config
    if program.training or device_of(program).type != "cpu" or hasattr(config, "freezing"):
        return False
    return bool(getattr(config.cpp, "weight_prepack", False))


def all_settings(
    program: Program, mode: str | None = None, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """inductor's settings for this candidate. Raises ``ValueError`` for an unknown setting."""
    of_mode = settings_of_mode(mode) if mode else {}
    freezing = {"freezing": True} if program.options.freezing and not program.training else {}
    users = inductor_settings(program.options.inductor_config)
    return {**of_mode, **(settings or {}), **freezing, **users}


def why_unavailable(device_type: str) -> str | None:
    """Why inductor cannot compile: it needs a C++ compiler for a CPU, and Triton for CUDA."""
    if device_type == "cpu":
        if not any_program(os.environ.get("CXX", ""), "g++", "clang++", "c++"):
            return "inductor needs a C++ compiler (g++ or clang++, or one named by CXX) and finds none"
        return None
    if importlib.util.find_spec("triton") is None:
        return f"inductor needs Triton for {device_type}, and it is not installed (pip install triton)"
    if not _triton_works():
        return "inductor needs a GPU that Triton supports, and finds none"
    missing = missing_for_triton()
    return f"inductor needs Triton, and Triton needs {missing}" if missing else None


def _triton_works() -> bool:
    try:
        module: Any = importlib.import_module("torch.utils._triton")
    except ImportError:  # torch 2.0
        module = importlib.import_module("torch._inductor.utils")
    return bool(module.has_triton())


def why_no_cudagraphs(device_type: str) -> str | None:
    return None if device_type == "cuda" else "CUDA graphs need a CUDA device"


class CudaGraphs:
    """CUDA graphs of AOTAutograd's graphs."""

    why_unavailable = staticmethod(why_no_cudagraphs)

    @staticmethod
    def compile_as(program: Program, name: str) -> Compiled:
        return with_cuda_graphs(program, name, lambda: compile_with_dynamo(program, name))


class CompiledAutograd:
    """inductor, with the backward captured whole when it runs."""

    SETTINGS = OF_INDUCTOR

    @staticmethod
    def why_unavailable(device_type: str) -> str | None:
        try:
            from torch._dynamo.compiled_autograd import _enable  # noqa: F401 - an old torch has none
        except ImportError:
            return f"compiled autograd needs torch 2.6 or later; this is torch {torch.__version__}"
        return why_unavailable(device_type)

    @staticmethod
    def compile_as(program: Program, name: str) -> Compiled:
        if not program.training:
            raise ValueError(f"{name} compiles the backward; inference has none")
        backwards = 0
        options = all_settings(program) or None
        dynamic = program.options.dynamic_shapes

        def compile_backward(graph: Any) -> Any:
            nonlocal backwards
            backwards += 1
            return torch.compile(
                graph, backend="inductor", dynamic=dynamic or None, fullgraph=True, options=options
            )

        def context() -> Any:
            return torch._dynamo.compiled_autograd._enable(compile_backward, dynamic=dynamic)

        compiled = compile_as(program, name)
        return replace(
            inside(compiled, context),
            # without a captured backward, this is plain inductor
            compiler_calls=lambda: min(compiled.compiler_calls(), backwards),
        )


class Regional:
    """inductor compiles each repeated submodule separately; the rest runs in eager."""

    SETTINGS = tuple(kind for kind in OF_INDUCTOR if kind != "whole_step")
    why_unavailable = staticmethod(why_unavailable)

    @staticmethod
    def compile_as(program: Program, name: str) -> Compiled:
        ignored = ("dynamic_batch", "whole_step", *(("freezing",) if program.training else ()))
        given, notes = dynamo_options(program, name, [option for option in TAKES if option not in ignored])
        settings = all_settings(program)
        calls = counting_graphs()
        regions = list(regions_of(program.module))
        if not regions:
            raise ValueError(f"{name} found no submodule to compile: this model has none")
        codes: dict[str, types.CodeType] = {}
        for region in regions:
            function = _own_forward(region, codes)
            region.forward = torch.compile(function, backend="inductor", options=settings or None, **given)
        kinds = sorted({type(region).__name__ for region in regions})
        note = f"{name}: {len(regions)} submodules compiled ({', '.join(kinds)})"
        compiled = Compiled(
            forward=program.forward(),
            region="submodules",
            compiler_calls=calls,
            constant_weights=packs_weights(program),
            notes=(*notes, note),
        )
        return with_freezing(program, compiled, settings)


def regions_of(module: nn.Module) -> list[nn.Module]:
    """The outermost repeated blocks; without them, the module's children."""
    children = (child for child in module.children() if not isinstance(child, nn.Identity))
    return list(dict.fromkeys(_repeated_blocks(module))) or list(children)


def _repeated_blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The outermost ones of lists and sequences. A block has submodules: repeated single layers are none."""
    for child in module.children():
        if isinstance(module, (nn.ModuleList, nn.Sequential, nn.ModuleDict)):
            alike = [other for other in module.children() if type(other) is type(child)]
            if len(alike) >= 2 and any(child.children()):
                yield child
                continue
        yield from _repeated_blocks(child)


def _own_forward(region: nn.Module, codes: dict[str, types.CodeType]) -> Callable[..., Any]:
    """The forward, with a code object shared only by regions of the same structure.

    Dynamo keeps compiled code by code object: equal blocks are compiled once,
    and blocks of other sizes do not use up each other's limit of recompilations.
    """
    function = getattr(region.forward, "__func__", None)
    if not isinstance(function, types.FunctionType):
        return region.forward
    shapes, own = [tuple(p.shape) for p in region.parameters()], own_code(function)
    own.__code__ = codes.setdefault(f"{region!r} {shapes}", own.__code__)
    return types.MethodType(own, region)
