"""``--explain``: what inductor generated, and what Dynamo checks before each call.

``generated_kernels`` has a line for each kernel: its name, then the signs that its code shows:

    random    it draws random numbers
    mask      it stores a tensor of booleans
    copy      it has no operation of its own: it copies a tensor into another order
    scalar    its loop is not vectorized (C++)

``kernel_lines`` has the model's lines that each kernel computes, where torch tracks them
(``trace.provenance_tracking_level=1``).

``guard_check_us`` is the time of all guards of all frames, as torch's own benchmark of guards measures it:
the shortest of several loops over the check.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from harness.counters import short_path
from harness.metrics import declared_beside
from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

WHEN = "compile"
WANTED = ("explain",)
METRICS = declared_beside(__file__)
KERNEL = re.compile(
    r"^(?P<name>\w+) = async_compile\.\w+\((?P<code>.*?)^(?:''', device_str|'''\))", re.MULTILINE | re.DOTALL
)
COPY = re.compile(r"\w+?_fused(?:__?convolution(?:_backward)?|__to_copy|_clone)*_\d+")
RANDOM = re.compile(r"normalized_rand|randn_cpu|randint64|tl\.rand|philox|load_seed")
FRAME = re.compile(r'File "([^"]+)", line (\d+)')
GENERATED = re.compile(r"(?:cpp|triton_\w{2,4})_fused")
LOOPS, CALLS = 5, 20


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    from torch._dynamo.guards import CheckFunctionManager
    from torch._inductor.graph import GraphLowering

    codes: list[str] = []
    lines: dict[str, list[str]] = {}
    checks: list[tuple[int, float]] = []
    save, init = GraphLowering.save_output_code, CheckFunctionManager.__init__

    def saved(code: str) -> None:
        codes.append(code)
        for kernel, line in lines_of_kernels():
            lines.setdefault(kernel, []).append(line)
        if save is not None:
            save(code)

    def checked(manager: Any, *given: Any, **named: Any) -> None:
        init(manager, *given, **named)
        # the graph's place among the arguments depends on torch
        graph: Any = next((x for x in (*given, *named.values()) if hasattr(x, "local_scope")), None)
        with suppress(AttributeError):  # in a torch with other names, the compilation must not fail
            checks.append(cost_of(manager.guard_manager, graph.local_scope))

    with ExitStack() as stack:
        stack.enter_context(patch.object(GraphLowering, "save_output_code", staticmethod(saved)))
        stack.enter_context(patch.object(CheckFunctionManager, "__init__", checked))
        yield
    numbers["generated_kernels"] = "\n".join(line for code in codes for line in signs(code)) or None
    texts = (f"{kernel} {', '.join(dict.fromkeys(of))}" for kernel, of in lines.items())
    numbers["kernel_lines"] = "\n".join(texts) or None
    if checks:
        numbers["guards"] = sum(count for count, _ in checks)
        numbers["guard_check_us"] = sum(cost for _, cost in checks)


def lines_of_kernels() -> Iterator[tuple[str, str]]:
    """Each kernel of the graph that was compiled last, with a line of the model: ``model.py:12``."""
    from torch._inductor import debug

    for kernel, stacks in getattr(debug, "_inductor_kernel_stack_trace", {}).items():
        for stack in stacks:
            frames = FRAME.findall(stack)
            if frames and GENERATED.match(kernel):
                file, line = frames[-1]
                yield kernel.partition(":")[0], f"{short_path(file)}:{line}"


def signs(code: str) -> list[str]:
    """A line for each kernel of a generated module."""
    lines = []
    for kernel in KERNEL.finditer(code):
        name, text = kernel["name"], kernel["code"]
        signature = text.partition("]")[0]
        cpp = "cpp_pybinding" in kernel[0][: len(name) + 40]
        seen = {
            "random": RANDOM.search(text) is not None,
            "mask": re.search(r"'bool\*'", signature) is not None
            or re.search(r"'(?:in_)?out_ptr\d+': '\*i1'", text) is not None,
            "copy": COPY.fullmatch(name) is not None,
            "scalar": cpp and "for(" in text and "at::vec" not in text,
        }
        lines.append(" ".join([name, *(sign for sign, shown in seen.items() if shown)]))
    return lines


def cost_of(guards: Any, scope: dict[str, Any]) -> tuple[int, float]:
    """The number of guards of one frame, and microseconds of one check."""

    def count(node: Any) -> int:
        # a dict whose order counts has its keys and values apart
        pairs = node.get_key_value_managers().values() if hasattr(node, "get_key_value_managers") else ()
        inside = [*node.get_child_managers(), *(child for pair in pairs for child in pair)]
        return len(node.get_leaf_guards()) + sum(count(child) for child in inside if child is not None)

    times = []
    for _ in range(LOOPS):
        start = time.perf_counter()
        for _ in range(CALLS):
            guards.check(scope)
        times.append((time.perf_counter() - start) / CALLS)
    return count(guards.root), min(times) * 1e6
