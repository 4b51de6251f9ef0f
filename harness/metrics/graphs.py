"""Counts of Dynamo and the caches during a candidate's compilation: graphs, calls, breaks, cache hits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness import counters
from harness.declared import COMPILATION, Metric
from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

WHEN = "compile"


def _count(name: str, meaning: str) -> Metric:
    return Metric(name, "", meaning, group=COMPILATION)


METRICS = (
    _count("calls_captured", "operations that Dynamo captured"),
    _count("unique_graphs", "graphs that Dynamo handed to a compiler"),
    _count("graph_breaks", "places where a graph ended before the function did"),
    _count("unique_graph_breaks", "different reasons of graph breaks"),
    Metric(
        "eager_fallbacks", "", "functions that Dynamo tried to compile and left to eager", group=COMPILATION
    ),
    _count("autograd_captures", "backward graphs that compiled autograd captured"),
    _count("autograd_compiles", "backward graphs that compiled autograd compiled"),
    _count("cudagraph_skips", "graphs that could not become CUDA graphs"),
    Metric("cudagraph_copied_inputs", "", "inputs that are copied before each replay of CUDA graphs"),
    _count("compile_cache_hits", "hits of inductor's caches during compilation"),
    _count("compile_cache_misses", "misses of inductor's caches during compilation"),
    Metric("kernels_autotuned", "", "operations whose kernel inductor chose by autotuning (max-autotune)"),
)


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    before = counters.snapshot()
    yield
    numbers.update(counters.growth(before, counters.snapshot()))
