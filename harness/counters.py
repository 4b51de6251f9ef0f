"""Dynamo's and the compile caches' counters, the only place that knows torch's names for them.

``torch._dynamo.utils.counters`` is not public, but it is what the field's own
harness reads, and its keys used here have not changed from torch 2.0 to 2.15.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.schema import Scalar


def graphs_compiled() -> int:
    """Graphs that Dynamo has handed to a compiler in this process so far."""
    return _read("stats", "unique_graphs")


def frames_given_up() -> int:
    """Frames that Dynamo tried to compile and then left to eager, for instance at its recompilation limit."""
    return _read("frames", "total") - _read("frames", "ok")


def counting_graphs(around: str = "") -> Callable[[], int]:
    """A count, from now on, of the graphs that Dynamo hands to a compiler.

    It stays 0 while no operation at all was captured: a graph of nothing is no work. So it does
    while all that was captured is what the function called ``around`` does after it has called
    the model: the loss alone.
    """
    graphs, operations = graphs_compiled(), _read("stats", "calls_captured")
    start_us = time.time_ns() // 1000

    def count() -> int:
        captured = _read("stats", "calls_captured") > operations
        return graphs_compiled() - graphs if captured and not _only_rest_of(around, start_us) else 0

    return count


def _only_rest_of(function: str, start_us: int) -> bool:
    """Whether all frames compiled since then, as far back as torch remembers, are that function's rest."""
    try:
        from torch._dynamo.utils import get_compilation_metrics
    except ImportError:
        return False
    frames = [m for m in get_compilation_metrics() if (m.start_time_us or 0) >= start_us and m.graph_op_count]
    rest = f"torch_dynamo_resume_in_{function}_at_"
    return bool(function and frames) and all((m.co_name or "").startswith(rest) for m in frames)


def cudagraph_skips() -> int:
    """Graphs that could not become CUDA graphs so far."""
    return _read("inductor", "cudagraph_skips")


def snapshot() -> dict[str, int]:
    """The counters of the field's result columns, and the compile caches' hits and misses."""
    breaks = _counter("graph_break")
    return {
        "calls_captured": _read("stats", "calls_captured"),
        "unique_graphs": _read("stats", "unique_graphs"),
        "graph_breaks": sum(breaks.values()),
        "unique_graph_breaks": len(breaks),
        "autograd_captures": _read("compiled_autograd", "captures"),
        "autograd_compiles": _read("compiled_autograd", "compiles"),
        "cudagraph_skips": cudagraph_skips(),
        "kernels_autotuned": _read("inductor", "select_algorithm_autotune"),
        "compile_cache_hits": _read("inductor", "fxgraph_cache_hit")
        + _read("aot_autograd", "autograd_cache_hit"),
        "compile_cache_misses": _read("inductor", "fxgraph_cache_miss")
        + _read("aot_autograd", "autograd_cache_miss"),
    }


def growth(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, Scalar]:
    return {name: after[name] - before[name] for name in after}


def _counter(group: str) -> Mapping[str, int]:
    try:
        from torch._dynamo.utils import counters
    except ImportError:  # a torch without dynamo has compiled nothing
        return {}
    return counters.get(group, {})


def _read(group: str, name: str) -> int:
    return int(_counter(group).get(name, 0))


def compilations() -> list[Any]:
    """What torch notes of each graph that it compiled, oldest first; it keeps the last 64 alone."""
    try:
        from torch._dynamo.utils import get_compilation_metrics
    except ImportError:  # before torch 2.2
        return []
    return list(get_compilation_metrics())


def new_compilations(before: Sequence[Any]) -> list[Any]:
    """Those that ``before``, an earlier answer of ``compilations``, does not have."""
    known = {id(one) for one in before}
    return [one for one in compilations() if id(one) not in known]


def break_reasons() -> list[Any]:
    """Why graphs ended before the function did, each with ``reason`` and ``user_stack``."""
    try:
        from torch._dynamo.utils import graph_break_reasons
    except ImportError:
        return []
    return list(graph_break_reasons)
