"""Compilers that are functions of the user, as defined in ``harness.loading.own_compiler``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from harness.backends.shared.dynamo import compile_with_dynamo
from harness.backends.shared.inductor import with_freezing
from harness.backends.shared.options import notes_on
from harness.counters import counting_graphs
from harness.failures import words_of
from harness.loading.own_compiler import parts_of
from harness.loading.own_model_build import function_of, load_module
from harness.program import Compile, Compiled, Program, forward_of

GRAPH, MODULE = "graph", "module"
RIGHT = (
    "a compiler takes (graph, example_inputs) as a backend of torch.compile does, or (module); "
    "if the arguments do not show which, set its attribute compiles to 'graph' or 'module'"
)


def compiler(name: str, given: str | Callable[..., Any]) -> tuple[str, Compile]:
    """What a user's function, given itself or by its source, says of itself, and its ``compile``.

    Raises ``LookupError`` if the function is not a compiler.
    """
    function, source = (function_at(given), given) if isinstance(given, str) else (given, name)
    kind_of(function, source)
    said = (inspect.getdoc(function) or f"A compiler of your own: {source}").strip()
    return said, functools.partial(compile_with, name=name, function=function, source=source)


def function_at(source: str) -> Callable[..., Any]:
    """The function in its file or module. Raises ``LookupError`` if there is none."""
    place, name = parts_of(source)
    try:
        module = load_module(place)
    except (KeyboardInterrupt, LookupError):
        raise
    except BaseException as error:  # a user's file can raise anything, for example SystemExit
        raise LookupError(f"{place} cannot be loaded ({type(error).__name__}: {words_of(error)})") from error
    return function_of(module, name, place)


def compile_with(program: Program, name: str, function: Callable[..., Any], source: str) -> Compiled:
    """Raises ``TypeError`` if the function returns an object that cannot be called."""
    if kind_of(function, source) == MODULE:
        return _compile_module(program, name, function, source)
    worked = 0

    @functools.wraps(function)
    def backend(graph: torch.fx.GraphModule, inputs: Any, **settings: Any) -> Any:
        nonlocal worked
        compiled = _callable(function(graph, inputs, **settings), source)
        worked += any(node.op.startswith("call") for node in graph.graph.nodes)
        return compiled

    compiled = compile_with_dynamo(program, backend, name=name, calls=lambda: worked)
    return with_freezing(program, compiled, {})  # of inductor, which may be inside


def _compile_module(program: Program, name: str, function: Callable[..., Any], source: str) -> Compiled:
    module = program.module
    before, graphs = _state_of(module), counting_graphs()
    compiled = _callable(function(module), source)
    unchanged = compiled is module and _state_of(module) == before
    # Dynamo's graphs prove compilation by torch.compile, also if the same module is returned
    dynamos = unchanged or isinstance(compiled, torch._dynamo.OptimizedModule)
    result = Compiled(
        forward=forward_of(compiled, program.loss if program.training else None),
        region="forward",
        compiler_calls=graphs if dynamos else lambda: 1,
        notes=notes_on(name, program.options, ()),
    )
    return with_freezing(program, result, {})


def _callable(compiled: Any, source: str) -> Any:
    if not callable(compiled):
        raise TypeError(
            f"{source} returned a {type(compiled).__name__}; a compiler returns what is called in place of "
            "the graph or the module"
        )
    return compiled


def kind_of(function: Callable[..., Any], source: str) -> str:
    """``"graph"`` or ``"module"``: what the function compiles. Raises ``LookupError`` for neither."""
    if function is torch.compile:
        raise LookupError("torch.compile calls a compiler, but is none; name a compiler, such as inductor")
    kind = getattr(function, "compiles", None)
    if kind in (GRAPH, MODULE):
        return str(kind)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature
        raise LookupError(f"the arguments of {source} cannot be read; {RIGHT}") from None
    given = signature.parameters.values()
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p.name for p in given if p.default is p.empty and p.kind in by_place]
    named = [p.name for p in given if p.default is p.empty and p.kind is inspect.Parameter.KEYWORD_ONLY]
    if len(needed) not in (1, 2) or named:
        raise LookupError(f"{source} takes {signature}; {RIGHT}")
    return GRAPH if len(needed) == 2 else MODULE


def _state_of(module: torch.nn.Module) -> list[Any]:
    """The parts that an in-place compiler changes: submodules, their types, methods and code."""
    return [
        (name, type(part), id(part), vars(part).get("forward"), vars(part).get("_compiled_call_impl"))
        for name, part in module.named_modules()
    ]
