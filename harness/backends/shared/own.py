"""Compilers that are functions of the user, as defined in ``harness.loading.own_compiler``."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from harness.backends.shared.dynamo import compile_with_dynamo
from harness.backends.shared.options import notes_on
from harness.counters import counting_graphs
from harness.failures import words_of
from harness.loading.own_compiler import parts_of
from harness.loading.own_model_build import load_module
from harness.program import Compiled, Program, forward_of

GRAPH, MODULE = "graph", "module"
RIGHT = (
    "a compiler takes (graph, example_inputs) as a backend of torch.compile does, or (module); "
    "if the arguments do not show which, set its attribute compiles to 'graph' or 'module'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """Replaces the module of a compiler."""

    name: str
    function: Callable[..., Any]
    source: str

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        said = (inspect.getdoc(self.function) or "").strip().splitlines()
        return said[0] if said else f"A compiler of your own: {self.source}"

    @staticmethod
    def found(name: str, source: str) -> Own:
        """The function in its file or module. Raises ``LookupError`` if it is not a compiler."""
        place, function = parts_of(source)
        try:
            module = load_module(place)
        except (KeyboardInterrupt, LookupError):
            raise
        except BaseException as error:  # a user's file can raise anything, for example SystemExit
            raise LookupError(
                f"{place} cannot be loaded ({type(error).__name__}: {words_of(error)})"
            ) from error
        made = getattr(module, function, None)
        if not callable(made):
            near = difflib.get_close_matches(function, [n for n in vars(module) if callable(vars(module)[n])])
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise LookupError(f"{place} has no function {function!r}{hint}")  # noqa: TRY004
        kind_of(made, source)
        return Own(name=name, function=made, source=source)

    @staticmethod
    def of(name: str, function: Callable[..., Any]) -> Own:
        """A function of this process. Raises ``LookupError`` if its arguments do not fit a compiler."""
        kind_of(function, name)
        return Own(name=name, function=function, source=name)

    def compile(self, program: Program) -> Compiled:
        """Raises ``TypeError`` if the function returns an object that cannot be called."""
        if kind_of(self.function, self.source) == GRAPH:
            return self._compile_graphs(program)
        return self._compile_module(program)

    def _compile_graphs(self, program: Program) -> Compiled:
        worked = 0

        @functools.wraps(self.function)
        def backend(graph: torch.fx.GraphModule, inputs: Any, **settings: Any) -> Any:
            nonlocal worked
            made = self._callable(self.function(graph, inputs, **settings))
            worked += any(node.op.startswith("call") for node in graph.graph.nodes)
            return made

        return compile_with_dynamo(program, backend, name=self.name, calls=lambda: worked)

    def _compile_module(self, program: Program) -> Compiled:
        before, graphs = _state_of(program.module), counting_graphs()
        made = self._callable(self.function(program.module))
        unchanged = made is program.module and _state_of(program.module) == before
        # Dynamo's graphs prove compilation by torch.compile, also if the same module is returned
        dynamos = unchanged or isinstance(made, torch._dynamo.OptimizedModule)
        return Compiled(
            forward=forward_of(made, program.loss if program.training else None),
            region="forward",
            compiler_calls=graphs if dynamos else lambda: 1,
            notes=notes_on(self.name, program.options, ()),
        )

    def _callable(self, made: Any) -> Any:
        if not callable(made):
            raise TypeError(
                f"{self.source} returned a {type(made).__name__}; a compiler returns what is called "
                "in place of the graph or the module"
            )
        return made


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
