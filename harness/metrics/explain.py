"""``--explain``: why graphs broke and why they were compiled again, with the line of the user's code.

One line of text each, at most ``MOST`` of either kind; the last line says how many more there were.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from harness import counters
from harness.schema import Scalar

WHEN = "compile"
WANTED = "explain"
MOST = 20


@contextmanager
def observe(device: torch.device, numbers: dict[str, Scalar]) -> Iterator[None]:
    compiled, broken = counters.compilations(), counters.break_reasons()
    yield
    known = {id(one) for one in broken}
    breaks = [break_line(one) for one in counters.break_reasons() if id(one) not in known]
    recompiled = [recompile_line(one) for one in counters.new_compilations(compiled) if _again(one)]
    numbers["graph_break_reasons"] = listed(breaks)
    numbers["recompile_reasons"] = listed(recompiled)


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
        line += f" ({short_path(frame.filename)}:{frame.lineno}{source})"
    return line


def recompile_line(compilation: Any) -> str:
    """``forward (model.py:12): n == 2``: the guard that failed."""
    guard = " ".join(str(compilation.recompile_reason).split("User stack trace:")[0].split())
    if not compilation.co_name:  # of a frame that torch then left to eager
        return guard
    place = f"{short_path(compilation.co_filename or '?')}:{compilation.co_firstlineno}"
    return f"{compilation.co_name} ({place}): {guard}"


def latest_recompilation() -> str:
    """The line of the last graph that was compiled again in this process; "" where torch tells of none."""
    again = [one for one in counters.compilations() if _again(one)]
    return recompile_line(again[-1]) if again else ""


def short_path(path: str) -> str:
    """The path below ``site-packages`` for a library's file, else its last three parts."""
    _, _, library = path.rpartition("/site-packages/")
    return library if "/site-packages/" in path else "/".join(path.split("/")[-3:])


def listed(lines: Iterable[str]) -> str | None:
    """Each line once, how often it came in front; None for none."""
    counts: dict[str, int] = {}
    for line in lines:
        counts[line] = counts.get(line, 0) + 1
    texts = [line if count == 1 else f"{count}x {line}" for line, count in counts.items()]
    if len(texts) > MOST:
        texts = [*texts[:MOST], f"and {len(texts) - MOST} more"]
    return "\n".join(texts) or None


def _again(compilation: Any) -> bool:
    return bool(getattr(compilation, "recompile_reason", None))
