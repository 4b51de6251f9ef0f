"""Shared code of the torch.compile backends."""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch

from harness.backends.shared.options import DYNAMO, mark_dynamic_batch, notes_on
from harness.counters import counting_graphs
from harness.program import Compiled, Program, own_code

ENTRY_POINTS = "torch_dynamo_backends"
SETTINGS = ("dynamo", "functorch", "dynamic", "fullgraph", "whole_step")
STEP = "batch"  # name of the function that ``compile_batch`` compiles


def compile_with_dynamo(
    program: Program,
    backend: str | Callable[..., Any],
    *,
    name: str = "",
    takes: Iterable[str] = DYNAMO,
    calls: Callable[[], int] | None = None,
    **options: Any,
) -> Compiled:
    """``torch.compile`` of forward and loss, whose backward runs the graph that AOTAutograd made.

    Or of the whole training step, if the option asks for it.

    ``name``: the candidate's name, for notes. ``takes``: the supported options. ``calls`` counts the
    compiler's calls, if a graph that Dynamo captured does not prove that the compiler worked.
    """
    eager = program.forward()
    whole = program.training and program.options.whole_step and "whole_step" in takes
    graphs = counting_graphs((*((STEP,) if whole else ()), eager.__name__), program.loss)
    given, notes = dynamo_options(program, name or str(backend), takes)

    # candidates share the code of the model's parts, and else a limit of recompilations, too (torch 2.13)
    isolates = "isolate_recompiles" in inspect.signature(torch.compile).parameters
    own: dict[str, Any] = {"isolate_recompiles": True} if isolates else {}

    def compile_it(function: Any) -> Any:
        return torch.compile(function, backend=backend, **given, **options, **own)

    return Compiled(
        forward=eager if whole else compile_it(eager),
        compile_batch=(lambda batch: compile_it(own_code(batch))) if whole else None,
        region="step" if whole else "forward+loss" if program.training else "forward",
        compiler_calls=graphs if calls is None else lambda: calls() if graphs() else 0,
        notes=notes,
    )


compile_as = compile_with_dynamo  # for presets.toml: a backend that torch has, with a name of ours


def dynamo_options(
    program: Program, name: str, takes: Iterable[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The user's ``dynamic`` and ``fullgraph``, and notes on the options that are not used."""
    options = program.options
    notes = notes_on(name, options, takes)
    if options.dynamic_batch and "dynamic_batch" in takes:
        why_not = mark_dynamic_batch(program)
        notes += (f"{name}: {why_not}",) if why_not else ()
    dynamic = True if options.dynamic_shapes else None
    return {"dynamic": dynamic, "fullgraph": options.nopython}, notes


# -- names that are registered with torch.compile: any --backend=NAME -------------------


def check(name: str, files: Iterable[str]) -> None:
    """``LookupError``, with the closest names, also of compilers with a file here, if there is none."""
    known = registered_names()
    if name not in known:
        close = difflib.get_close_matches(name, sorted({*known, *files}), n=3, cutoff=0.6)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise LookupError(
            f"there is no compiler called {name!r}, here or registered with torch.compile{hint}"
        )


def registered_names() -> tuple[str, ...]:
    """Every name that ``torch.compile`` knows, including its debugging backends."""
    import torch._dynamo  # torch 2.0 does not import it

    # torch <= 2.0 does not list entry points
    return tuple(dict.fromkeys((*torch._dynamo.list_backends(exclude_tags=()), *installed_names())))


def installed_names() -> tuple[str, ...]:
    """Names that installed packages register: their entry points in the group ``torch_dynamo_backends``."""
    return tuple(sorted({point.name for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}))
