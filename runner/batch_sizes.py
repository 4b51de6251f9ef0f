"""``--batch-size-file``: one model a line, ``name,batch`` or ``name batch``, as in PyTorch's own harness."""

from __future__ import annotations

import re
from pathlib import Path

from runner.errors import UsageError

FLAG = "--batch-size-file"


def batch_sizes(path: Path) -> tuple[tuple[str, int], ...]:
    """(model, batch size) for each line; empty lines and ``# comments`` are passed over.

    ``UsageError`` naming file and line for anything else.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{FLAG}: {path} cannot be read ({reason})") from None
    found: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        words = [word for word in re.split(r"[,\s]+", line.split("#")[0].strip()) if word]
        if not words:
            continue
        if len(words) != 2 or not words[1].isdecimal() or int(words[1]) < 1:
            shown = line.strip()[:80]
            raise UsageError(f"{FLAG}: line {number} of {path} is not 'model,batch size': {shown!r}")
        found[words[0]] = int(words[1])
    return tuple(found.items())
