"""Regional compilation: inductor compiles each repeated submodule separately; the rest runs in eager."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from harness.backends.shared import inductor
from harness.backends.shared.dynamo import dynamo_options
from harness.counters import counting_graphs
from harness.program import Compiled, Program, own_code

why_unavailable = inductor.why_unavailable
SETTINGS = tuple(kind for kind in inductor.SETTINGS if kind != "whole_step")
NAME = "inductor_regional"


def compile(program: Program) -> Compiled:  # noqa: A001 - the name that every backend offers
    ignored = ("dynamic_batch", "whole_step", *(("freezing",) if program.training else ()))
    takes = [option for option in inductor.TAKES if option not in ignored]
    given, notes = dynamo_options(program, NAME, takes)
    settings = inductor.all_settings(program)
    calls = counting_graphs()
    regions = list(regions_of(program.module))
    if not regions:
        raise ValueError("inductor_regional found no submodule to compile: this model has none")
    codes: dict[str, types.CodeType] = {}
    for region in regions:
        function = _own_forward(region, codes)
        region.forward = torch.compile(function, backend="inductor", options=settings or None, **given)
    kinds = sorted({type(region).__name__ for region in regions})
    note = f"{NAME}: {len(regions)} submodules compiled ({', '.join(kinds)})"
    compiled = Compiled(
        forward=program.forward(),
        region="submodules",
        compiler_calls=calls,
        constant_weights=inductor.packs_weights(program),
        notes=(*notes, note),
    )
    return inductor.with_freezing(program, compiled, settings)


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
