"""Dynamo's and the compile caches' counters, the only place that knows torch's names for them.

``torch._dynamo.utils.counters`` is not public, but it is what the field's own
harness reads, and its keys used here have not changed from torch 2.0 to 2.15.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.schema import Scalar


def graphs_compiled() -> int:
    """Graphs that Dynamo has handed to a compiler in this process so far."""
    return _read("stats", "unique_graphs")


def frames_given_up() -> int:
    """Frames that Dynamo tried to compile and then left to eager, for instance at its recompilation limit."""
    return _read("frames", "total") - _read("frames", "ok")


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
        "cudagraph_skips": _read("inductor", "cudagraph_skips"),
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
