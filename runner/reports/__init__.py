"""Reports, one module each, found by file name.

A module offers ``render(summary: Summary) -> Mapping[str, bytes]``: file name
-> content. It chooses digits and layout and computes nothing; the same
summary gives the same bytes. Heavy libraries are imported inside ``render``.
Modules that begin with an underscore are shared by reports; ``console``
prints instead of writing files.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

from runner.comparison import Summary


def discover() -> tuple[ModuleType, ...]:
    """The modules that render files, sorted by name."""
    names = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))
    modules = (importlib.import_module(f"{__name__}.{name}") for name in names)
    return tuple(module for module in modules if hasattr(module, "render"))


def render_all(summary: Summary) -> dict[str, bytes]:
    """The files of every report, by name. ``ValueError`` when two reports write the same file.

    A report that fails costs its own files only: what was measured must not be lost to a
    drawing library. The failure is one line on stderr.
    """
    files: dict[str, bytes] = {}
    for module in discover():
        render: Callable[[Summary], Mapping[str, bytes]] = module.render
        try:
            made = render(summary)
        except Exception as error:  # see above
            name = module.__name__.rsplit(".", 1)[-1]
            print(f"error: report {name} was not made: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        twice = files.keys() & made.keys()
        if twice:
            raise ValueError(f"{module.__name__} and another report both write {sorted(twice)}")
        files.update(made)
    return files
