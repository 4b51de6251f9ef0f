"""``--batch-size-file``: one model per line, ``name,batch`` or ``name batch``, as in PyTorch's harness."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from harness.settings import Given, Group, flag
from runner.errors import UsageError

BATCH_SIZE_FILE = flag(
    "--batch-size-file=FILE",
    group=Group.MODELS,
    help="batch sizes for some models: a file with one 'model,batch size' per line",
)
FLAG = BATCH_SIZE_FILE.long


def batch_sizes_asked(given: Given, default: Any) -> Any:
    path = given.get(BATCH_SIZE_FILE.key)
    if path is not None and "batch_size" in given:
        raise UsageError(f"--batch-size and {BATCH_SIZE_FILE.long} exclude each other; choose one")
    return batch_sizes(Path(path)) if path is not None else default


def batch_sizes(path: Path) -> tuple[tuple[str, int], ...]:
    """(model, batch size) of each line. Empty lines and ``# comments`` are ignored.

    Raises ``UsageError``, which names the file and the line, for any other text.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{FLAG}: {path} cannot be read ({reason})") from None
    sizes: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        text = line.split("#")[0].strip()
        if not text:
            continue
        words = [word for word in re.split(r"[,\s]+", text) if word]
        if len(words) != 2 or not re.fullmatch("0*[1-9][0-9]{0,8}", words[1]):
            raise UsageError(f"{FLAG}: line {number} of {path} is not 'model,batch size': {text[:80]!r}")
        if words[0] in sizes:
            raise UsageError(
                f"{FLAG}: line {number} of {path} has {words[0]} again; leave one of the lines out"
            )
        sizes[words[0]] = int(words[1])
    if not sizes:
        raise UsageError(f"{FLAG}: {path} has no line; write 'model,batch size', one model a line")
    return tuple(sizes.items())
