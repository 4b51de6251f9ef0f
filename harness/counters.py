"""Counters of Dynamo and of the compile caches. Only this file knows torch's names for them.

``torch._dynamo.utils.counters`` is not public, but PyTorch's own harness reads it, and the keys used here
have not changed from torch 2.0 to 2.15.
"""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from harness.schema import Scalar

OTHER_BACKEND = ("BACKEND_MATCH", "___check_current_backend")
"""Names of the guard on the backend, in different versions of torch."""
MOST_COMPILATIONS = 10_000


def graphs_compiled() -> int:
    """Graphs that Dynamo has handed to a compiler in this process so far."""
    return _read("stats", "unique_graphs")


def frames_given_up() -> int:
    """Frames that Dynamo tried to compile and left to eager, for instance at its recompilation limit."""
    return _read("frames", "total") - _read("frames", "ok")


def counting_graphs(around: Sequence[str] = (), loss: object = None) -> Callable[[], int]:
    """A function that returns how many graphs Dynamo has passed to a compiler since now.

    It returns 0 if no operation of the model was captured: the graphs are empty, or they hold only the
    ``loss``, an optimizer or the rest of the functions ``around`` after their call of the model.
    """
    graphs, operations = graphs_compiled(), _read("stats", "calls_captured")
    start_us = time.time_ns() // 1000

    def count() -> int:
        captured = _read("stats", "calls_captured") > operations
        return graphs_compiled() - graphs if captured and not _only_rest_of(around, loss, start_us) else 0

    return count


def _only_rest_of(functions: Sequence[str], loss: object, start_us: int) -> bool:
    """Whether all frames compiled since ``start_us`` are the rest of ``functions``, ``loss`` or an optimizer.

    torch keeps the metrics of the last frames only.
    """
    frames = [m for m in compilations() if _began_us(m) >= start_us and getattr(m, "graph_op_count", None)]
    rests = tuple(f"torch_dynamo_resume_in_{function}_at_" for function in functions)
    code = getattr(getattr(loss, "forward", loss), "__code__", None)
    place = (code.co_name, code.co_filename, code.co_firstlineno) if code is not None else None

    def beside(frame: Any) -> bool:
        of_frame = (frame.co_name, getattr(frame, "co_filename", ""), getattr(frame, "co_firstlineno", 0))
        optimizes = "/torch/optim/" in (of_frame[1] or "")
        return (frame.co_name or "").startswith(rests) or of_frame == place or optimizes

    return bool(functions and frames) and all(map(beside, frames))


def _began_us(metrics: Any) -> float:
    """torch 2.3 to 2.5 have the time in seconds, and none for a backward."""
    return getattr(metrics, "start_time_us", None) or 1e6 * (getattr(metrics, "start_time", None) or 0.0)


def watching_breaks() -> Callable[[], tuple[str, ...]]:
    """A function that returns why Dynamo gave up parts of the code since now: a line for each reason."""
    before = _given_up()

    def reasons() -> tuple[str, ...]:
        now = _given_up()
        return tuple(_explanation(text) for text, count in now.items() if count > before.get(text, 0))

    return reasons


def _given_up() -> dict[str, int]:
    return {**_counter("unimplemented"), **_counter("graph_break")}


def _explanation(text: str) -> str:
    """The exception that the model's code raised, torch's line "Explanation: ...", or its first line."""
    raised = re.search(r"Developer debug context: raised exception (.+)", str(text))
    if raised:
        return f"the model's code raises {raised[1]} while Dynamo traces it"
    lines = [line.strip() for line in str(text).splitlines() if line.strip()] or [""]
    told = [line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")]
    return (told or lines)[0].removesuffix(".")


def forget_sizes() -> None:
    """Dynamo forgets which sizes and numbers have changed between calls. Call it before each candidate.

    It keeps them by file and line: what changed in one candidate would be dynamic in the next one at once.
    """
    reset = getattr(sys.modules.get("torch._dynamo.pgo"), "reset_code_state", None)  # from torch 2.6
    if reset is not None:
        reset()


def cudagraph_skips() -> int:
    """The number of graphs so far that could not become CUDA graphs."""
    return _read("inductor", "cudagraph_skips")


def cudagraph_copied_inputs() -> int:
    """Of all CUDA graphs recorded so far, the inputs that are copied before each replay.

    torch counts them when it records a graph, so a growth proves that one was recorded.
    """
    return _read("inductor", "cudagraph_recorded_non_static_inputs")


def cudagraphs_changed() -> int:
    """A number that grows when a CUDA graph is recorded, or given up."""
    return cudagraph_skips() + cudagraph_copied_inputs()


def latest_cudagraph_skip() -> str:
    """torch's reason for the last graph that could not become a CUDA graph; "" if it reports none."""
    reasons = [getattr(compilation, "cudagraph_skip_reason", None) for compilation in compilations()]
    return next((" ".join(str(why).split()) for why in reversed(reasons) if why), "")


def growing() -> Callable[[], dict[str, Scalar]]:
    """A function that returns how the counters have grown since now.

    Of the columns of PyTorch's harness, and hits and misses of the compile caches.
    """
    counts, breaks = _counts(), {**_counter("graph_break")}

    def growth() -> dict[str, Scalar]:
        grown: dict[str, Scalar] = {name: count - counts[name] for name, count in _counts().items()}
        # a reason that an earlier candidate has had counts as well
        now = _counter("graph_break").items()
        return {**grown, "unique_graph_breaks": sum(count > breaks.get(reason, 0) for reason, count in now)}

    return growth


def _counts() -> dict[str, int]:
    return {
        "calls_captured": _read("stats", "calls_captured"),
        "unique_graphs": _read("stats", "unique_graphs"),
        "graph_breaks": sum(_counter("graph_break").values()),
        "eager_fallbacks": frames_given_up(),
        "autograd_captures": _read("compiled_autograd", "captures"),
        "autograd_compiles": _read("compiled_autograd", "compiles"),
        "cudagraph_skips": cudagraph_skips(),
        "cudagraph_copied_inputs": cudagraph_copied_inputs(),
        "kernels_autotuned": _read("inductor", "select_algorithm_autotune"),
        "compile_cache_hits": _read("inductor", "fxgraph_cache_hit")
        + _read("aot_autograd", "autograd_cache_hit"),
        "compile_cache_misses": _read("inductor", "fxgraph_cache_miss")
        + _read("aot_autograd", "autograd_cache_miss"),
    }


def _dynamo(name: str) -> Any:
    """What Dynamo calls so. None in a torch without Dynamo, which compiles nothing, or before it had this."""
    try:
        return getattr(importlib.import_module("torch._dynamo.utils"), name, None)
    except ImportError:
        return None


def _counter(group: str) -> Mapping[str, int]:
    counts: Mapping[str, int] = (_dynamo("counters") or {}).get(group, {})
    return counts


def _read(group: str, name: str) -> int:
    return int(_counter(group).get(name, 0))


@contextmanager
def keeping_compilations() -> Iterator[None]:
    """Inside, ``compilations`` has as good as all; else torch keeps the last 64 only."""
    limit = _dynamo("set_compilation_metrics_limit")
    kept = getattr(_dynamo("_compilation_metrics"), "maxlen", None)
    if limit is None or kept is None:
        yield
        return
    limit(MOST_COMPILATIONS)
    try:
        yield
    finally:
        limit(kept)


def compilations() -> list[Any]:
    """torch's metrics of each compiled graph, oldest first."""
    metrics = _dynamo("get_compilation_metrics")  # from torch 2.2
    return list(metrics()) if metrics else []


def added(before: Sequence[Any], now: Sequence[Any]) -> list[Any]:
    """What is in ``now``, a later result of ``compilations`` or ``break_reasons``, and not in ``before``."""
    known = {id(each) for each in before}
    return [each for each in now if id(each) not in known]


def compiled_again(compilation: Any) -> bool:
    """Whether a guard of the model failed.

    A failed guard on the backend does not count: candidates of one process share the model's code objects,
    and another candidate has compiled the code before.
    """
    reason = str(getattr(compilation, "recompile_reason", None) or "")
    return bool(reason) and not any(word in reason for word in OTHER_BACKEND)


def break_reasons() -> list[Any]:
    """torch's list of graph breaks, each with ``reason`` and ``user_stack``."""
    return list(_dynamo("graph_break_reasons") or ())


def recompile_line(compilation: Any) -> str:
    """``forward (model.py:12): n == 2``: the guard that failed."""
    guard = " ".join(str(compilation.recompile_reason).split("User stack trace:")[0].split())
    if not compilation.co_name:  # a frame that torch left to eager afterwards
        return guard
    place = f"{short_path(compilation.co_filename or '?')}:{compilation.co_firstlineno}"
    return f"{compilation.co_name} ({place}): {guard}"


def latest_recompilation() -> str:
    """The line of the last graph that was compiled again in this process; "" if torch reports none."""
    again = [compilation for compilation in compilations() if getattr(compilation, "recompile_reason", None)]
    return recompile_line(again[-1]) if again and compiled_again(again[-1]) else ""


def short_path(path: str) -> str:
    """The path below ``site-packages`` for a library's file, else its last three parts."""
    _, _, library = path.rpartition("/site-packages/")
    return library if "/site-packages/" in path else "/".join(path.split("/")[-3:])
