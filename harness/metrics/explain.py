"""``--explain``: why graphs broke and why they were compiled again, with the line of the user's code.

One line of text for each, at most ``MOST`` of each kind. The last line counts the lines left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness import counters
from harness.metrics import declared_beside
from harness.schema import Scalar

if TYPE_CHECKING:
    import torch

WHEN = "compile"
METRICS = declared_beside(__file__)
WANTED = ("explain",)
MOST = 20
JUMP = "generic_jump "


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    compiled, broken = counters.compilations(), counters.break_reasons()
    yield
    breaks = [*map(break_line, counters.added(broken, counters.break_reasons()))]
    explained = {_place(line) for line in breaks if not line.startswith(JUMP)}
    # the jump that Dynamo makes where a line broke the graph is no further reason
    breaks = [line for line in breaks if not (line.startswith(JUMP) and _place(line) in explained)]
    again = filter(counters.compiled_again, counters.added(compiled, counters.compilations()))
    numbers["graph_break_reasons"] = listed(breaks)
    numbers["recompile_reasons"] = listed(map(counters.recompile_line, again))


def break_line(reason: Any) -> str:
    """``Failed to trace builtin operator: Dynamo does not know ... (model.py:5: print(x))``"""
    text = str(reason.reason)
    explained = re.search(r"Explanation: (.+)", text)
    first = (text.strip().splitlines() or ["no reason given"])[0]
    line = f"{first}: {explained[1]}" if explained else first
    frames: Sequence[Any] = getattr(reason, "user_stack", None) or ()
    if frames:
        frame = frames[-1]
        source = f": {frame.line.strip()}" if frame.line else ""
        line += f" ({counters.short_path(frame.filename)}:{frame.lineno}{source})"
    return line


def _place(line: str) -> str:
    return line.rpartition(" (")[2]


def listed(lines: Iterable[str]) -> str | None:
    """Each different line once, with its count as a prefix; None without lines."""
    texts = [line if count == 1 else f"{count}x {line}" for line, count in Counter(lines).items()]
    if len(texts) > MOST:
        texts = [*texts[:MOST], f"and {len(texts) - MOST} more"]
    return "\n".join(texts) or None
