"""A candidate's own settings: ``inductor[fallback_random=True,dynamo.recompile_limit=4]``.

    KEY=VALUE               of torch._inductor.config
    dynamo.KEY=VALUE        of torch._dynamo.config
    functorch.KEY=VALUE     of torch._functorch.config
    mode=NAME               inductor's mode, as torch.compile takes it
    dynamic=True, fullgraph=True    arguments of torch.compile
    whole_step=True         the training step with its backward and optimizer is compiled
    decompose.OP=False      the operator aten.OP keeps its own kernel: inductor does not decompose it

A compiler's ``SETTINGS`` names the kinds that it takes.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import torch

from harness.backends.shared.contexts import SETTLING_CALLS, inside
from harness.backends.shared.options import inductor_settings, settings_of, settings_of_mode
from harness.program import Compile, Compiled, Program
from harness.settings import choice

# argument of torch.compile, or our own -> option
ARGUMENTS = {"dynamic": "dynamic_shapes", "fullgraph": "nopython", "whole_step": "whole_step"}
MODULES = {"dynamo": "torch._dynamo.config", "functorch": "torch._functorch.config"}
CAPTURED_AS = MappingProxyType(
    {"native_batch_norm": ("_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training")}
)
"""Operator -> the operators that torch captures in its place."""
OF_INDUCTOR = ("inductor", "mode", "decompose", *MODULES, *ARGUMENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSettings:
    """What the settings in brackets change."""

    inductor: tuple[str, ...] = ()
    options: Mapping[str, Any]
    patches: Mapping[str, Mapping[str, Any]]  # module of a configuration -> settings
    kept: tuple[Any, ...] = ()  # operators that are not decomposed

    @contextmanager
    def active(self) -> Iterator[None]:
        """The state in which the candidate compiles, apart from inductor's own options."""
        with ExitStack() as stack:
            for module, settings in self.patches.items():
                stack.enter_context(importlib.import_module(module).patch(dict(settings)))
            if self.kept:
                from torch._inductor import decomposition

                functorch: Any = importlib.import_module(MODULES["functorch"])
                # the cache of AOTAutograd, which an old torch lacks, does not know the table
                if hasattr(functorch, "enable_autograd_cache"):
                    stack.enter_context(functorch.patch({"enable_autograd_cache": False}))
                for table in (decomposition.decompositions, decomposition.fast_random_decomps()):
                    stack.enter_context(patch.dict(table))
                    for operator in self.kept:
                        table.pop(operator, None)
            yield


def own_settings(settings: Sequence[str], takes: Sequence[str]) -> OwnSettings:
    """The settings, read. ``takes``: the kinds that the compiler takes. ``ValueError`` with a sentence."""
    inductor: list[str] = []
    options: dict[str, Any] = {}
    patches: dict[str, dict[str, Any]] = {}
    kept: list[Any] = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise ValueError(f"{setting!r} is not written as key=value")
        space, dot, name = key.partition(".")
        kind = space if (space in MODULES or space == "decompose") and dot else key
        kind = kind if kind in OF_INDUCTOR else "inductor"
        if kind not in takes:
            words = ", ".join(f"{kind}.KEY" if kind in MODULES else kind for kind in takes)
            words = words or "no settings in brackets"
            raise ValueError(f"this compiler does not take {key!r}; it takes {words}")
        if kind in ARGUMENTS or kind == "decompose":
            right = "False" if kind == "decompose" else "True"
            if value.strip().lower() != right.lower():
                raise ValueError(f"{key}={value}: write {key}={right}, or leave it out")
        if kind in ARGUMENTS:
            options[ARGUMENTS[kind]] = True
        elif kind == "decompose":
            kept += _overloads(name)
        elif kind == "mode":
            inductor += [f"{k}={v}" for k, v in settings_of_mode(value).items()]
        elif kind in MODULES:
            patches.setdefault(MODULES[kind], {}).update(settings_of([f"{name}={value}"], MODULES[kind]))
        else:
            inductor.append(setting)
    inductor_settings(inductor)
    return OwnSettings(inductor=tuple(inductor), options=options, patches=patches, kept=tuple(kept))


def _overloads(name: str) -> Iterator[Any]:
    """The overloads of ``aten.name``, and of the operators that torch captures in its place."""
    from torch._inductor.decomposition import fast_random_decomps

    names = {str(key).split(".")[1] for key in fast_random_decomps() if str(key).startswith("aten.")}
    captured = names.intersection(CAPTURED_AS.get(name, ()))  # an older torch lacks some
    for operator in (choice("decomposed operator", names).read(name), *captured):
        packet = getattr(torch.ops.aten, operator)
        yield from (getattr(packet, overload) for overload in packet.overloads())


def with_settings(compile_it: Compile, settings: Sequence[str], takes: Sequence[str]) -> Compile:
    own = own_settings(settings, takes)

    def compiled_with(program: Program) -> Compiled:
        config = (*program.options.inductor_config, *own.inductor)
        options = replace(program.options, inductor_config=config, **own.options)
        with own.active():
            compiled = compile_it(replace(program, options=options))
        if not own.patches and not own.kept:
            return compiled
        return inside(compiled, own.active, calls=SETTLING_CALLS)

    return compiled_with
