"""Compilers that have no file here, but are registered with ``torch.compile``: any ``--backend=NAME``."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import torch

from harness.backends._dynamo import compile_with_dynamo
from harness.program import Compiled, Program


@dataclass(frozen=True, slots=True)
class Registered:
    """Stands for the module that a compiler of its name would have."""

    name: str

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return f"The backend {self.name!r} that is registered with torch.compile, as it is."

    @staticmethod
    def called(name: str) -> Registered:
        """``LookupError``, with the names that are closest, if there is none."""
        from harness.backends import backend_names

        known = registered_names()
        if name not in known:
            close = difflib.get_close_matches(name, sorted({*known, *backend_names()}), n=3, cutoff=0.6)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise LookupError(
                f"there is no compiler called {name!r}, here or registered with torch.compile{hint}"
            )
        return Registered(name)

    def compile(self, program: Program) -> Compiled:
        return compile_with_dynamo(program, self.name)


def registered_names() -> tuple[str, ...]:
    """Every name that ``torch.compile`` knows, its own for debugging included."""
    return tuple(torch._dynamo.list_backends(exclude_tags=()))
