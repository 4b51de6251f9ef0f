"""What the torch.compile backends share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from harness.backends._options import DYNAMO, mark_dynamic_batch, notes_on
from harness.counters import counting_graphs
from harness.program import Compiled, Program


def compile_with_dynamo(
    program: Program,
    backend: str | Callable[..., Any],
    *,
    name: str = "",
    takes: Iterable[str] = DYNAMO,
    calls: Callable[[], int] | None = None,
    **options: Any,
) -> Compiled:
    """``torch.compile`` of forward and loss. The step's backward runs what AOTAutograd made of it.

    ``name`` is the candidate's, for notes; ``takes`` the options that it
    understands. ``calls`` counts the compiler's calls where it takes more
    than a graph that Dynamo captured to prove that it worked.
    """
    eager = program.forward()
    graphs = counting_graphs(eager.__name__)
    given, notes = dynamo_options(program, name or str(backend), takes)
    forward = torch.compile(eager, backend=backend, **given, **options)
    return Compiled(
        forward=forward,
        region="forward+loss" if program.training else "forward",
        compiler_calls=graphs if calls is None else lambda: calls() if graphs() else 0,
        notes=notes,
    )


def dynamo_options(
    program: Program, name: str, takes: Iterable[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """``dynamic`` and ``fullgraph`` as a person asked for them, and the notes on what is not used."""
    asked = program.options
    notes = notes_on(name, asked, takes)
    if asked.dynamic_batch and "dynamic_batch" in takes:
        why_not = mark_dynamic_batch(program)
        notes += (f"{name}: {why_not}",) if why_not else ()
    return {"dynamic": True if asked.dynamic_shapes else None, "fullgraph": asked.nopython}, notes
