"""``python -m harness.probe_compilers cpu [NAME...]``: what each compiler is, and whether it can be used.

Prints ``{name: {"what": line, "why": reason or null, "modes": [mode, ...]}}``; no
modes means all of them. Without names, those that have a file of their own.
What the compilers print while they are looked at goes to the error output.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence

from harness.backends import backend_names, describe, modes_of, why_unavailable


def probe(name: str, device_type: str) -> dict[str, str | list[str] | None]:
    """Never raises: a compiler that cannot even be looked at is one that cannot be used."""
    try:
        return {
            "what": describe(name),
            "why": why_unavailable(name, device_type),
            "modes": list(modes_of(name)),
        }
    except Exception as error:  # packages fail in any way while they are imported
        return {"what": "", "why": str(error) or type(error).__name__, "modes": []}


def main(arguments: Sequence[str]) -> None:
    device_type, *names = arguments
    with contextlib.redirect_stdout(sys.stderr):
        found = {name: probe(name, device_type) for name in names or backend_names()}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
