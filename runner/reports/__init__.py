"""Reports, one module each, found by file name.

A module offers ``render(summary: Summary) -> Mapping[str, bytes]``: file name
-> content. It chooses digits and layout and computes nothing; the same
summary gives the same bytes. Heavy libraries are imported inside ``render``.
``FORMATS`` names the endings of its files, which are the words of ``--format``;
without it, the module's own name is that word.
Modules that begin with an underscore are shared by reports; ``console``
prints instead of writing files.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import ModuleType

from runner.comparison import Summary


def discover() -> tuple[ModuleType, ...]:
    """The modules that render files, sorted by name."""
    names = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))
    modules = (importlib.import_module(f"{__name__}.{name}") for name in names)
    return tuple(module for module in modules if hasattr(module, "render"))


def formats_of(module: ModuleType) -> tuple[str, ...]:
    """The words of ``--format`` that ask for this report."""
    return tuple(getattr(module, "FORMATS", (module.__name__.rsplit(".", 1)[-1],)))


def formats() -> tuple[str, ...]:
    """Every word that some report answers to, sorted."""
    return tuple(sorted({word for module in discover() for word in formats_of(module)}))


def render_all(summary: Summary, wanted: Collection[str] | None = None) -> dict[str, bytes]:
    """The files of every report, by name; ``wanted``: only those of these formats.

    ``ValueError`` when two reports write the same file.

    A report that fails costs its own files only: what was measured must not be lost to a
    drawing library. The failure is one line on stderr.
    """
    files: dict[str, bytes] = {}
    for module in discover():
        # one report may make files of several formats
        unwanted = set() if wanted is None else set(formats_of(module)) - set(wanted)
        if unwanted and unwanted == set(formats_of(module)):
            continue
        render: Callable[[Summary], Mapping[str, bytes]] = module.render
        try:
            made = render(summary)
        except Exception as error:  # see above
            name = module.__name__.rsplit(".", 1)[-1]
            print(f"error: report {name} was not made: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        made = {name: made[name] for name in made if name.rsplit(".", 1)[-1] not in unwanted}
        twice = files.keys() & made.keys()
        if twice:
            raise ValueError(f"{module.__name__} and another report both write {sorted(twice)}")
        files.update(made)
    return files
