"""Compilers without a file here that are registered with ``torch.compile``: any ``--backend=NAME``."""

from __future__ import annotations

import difflib
import importlib.metadata
from collections.abc import Iterable

import torch

ENTRY_POINTS = "torch_dynamo_backends"


def check(name: str, files: Iterable[str]) -> None:
    """``LookupError``, with the closest names, also of compilers with a file here, if there is none."""
    known = registered_names()
    if name not in known:
        close = difflib.get_close_matches(name, sorted({*known, *files}), n=3, cutoff=0.6)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise LookupError(
            f"there is no compiler called {name!r}, here or registered with torch.compile{hint}"
        )


def registered_names() -> tuple[str, ...]:
    """Every name that ``torch.compile`` knows, including its debugging backends."""
    # torch <= 2.0 does not list entry points
    return tuple(dict.fromkeys((*torch._dynamo.list_backends(exclude_tags=()), *installed_names())))


def installed_names() -> tuple[str, ...]:
    """Names that installed packages register: their entry points in the group ``torch_dynamo_backends``."""
    return tuple(sorted({point.name for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}))
