"""Compilers without a file here that are registered with ``torch.compile``: any ``--backend=NAME``."""

from __future__ import annotations

import difflib
import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch

from harness.backends.shared.dynamo import SETTINGS, compile_with_dynamo
from harness.program import Compiled, Program

ENTRY_POINTS = "torch_dynamo_backends"


@dataclass(frozen=True, slots=True)
class Registered:
    """Replaces the module of a compiler."""

    name: str
    SETTINGS: ClassVar = SETTINGS

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return f"The backend {self.name!r} that is registered with torch.compile."

    @staticmethod
    def called(name: str, files: Iterable[str]) -> Registered:
        """``LookupError``, with the closest names, also of compilers with a file here, if there is none."""
        known = registered_names()
        if name not in known:
            close = difflib.get_close_matches(name, sorted({*known, *files}), n=3, cutoff=0.6)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise LookupError(
                f"there is no compiler called {name!r}, here or registered with torch.compile{hint}"
            )
        return Registered(name)

    def compile(self, program: Program) -> Compiled:
        return compile_with_dynamo(program, self.name)


def registered_names() -> tuple[str, ...]:
    """Every name that ``torch.compile`` knows, including its debugging backends."""
    # torch <= 2.0 does not list entry points
    return tuple(dict.fromkeys((*torch._dynamo.list_backends(exclude_tags=()), *installed_names())))


def installed_names() -> tuple[str, ...]:
    """Names that installed packages register: their entry points in the group ``torch_dynamo_backends``."""
    return tuple(sorted({point.name for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}))
