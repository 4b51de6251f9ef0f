"""Reports: one module for each, discovered by file name.

A module defines ``render(summary: Summary) -> Mapping[str, bytes]``: file name
-> content. It chooses digits and layout and computes nothing. The same summary
gives the same bytes. Heavy libraries are imported inside ``render``.
``FORMATS`` lists the file endings of the report, which are values of
``--format``; the default is the name of the module. With ``ON_REQUEST = True``,
the report is made only if ``--format`` names it; the formats of other programs
are in ``adapters``. Shared code is in ``parts`` and ``pages``. ``console`` prints and writes no files.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import ModuleType

from runner.analysis.results import Summary


def discover() -> tuple[ModuleType, ...]:
    """The modules that render files, also those of ``adapters``, sorted by name."""
    here = Path(__file__).parent
    paths = (path.relative_to(here) for part in (here, here / "adapters") for path in part.glob("[!_]*.py"))
    names = sorted(".".join(path.with_suffix("").parts) for path in paths)
    modules = (importlib.import_module(f"{__name__}.{name}") for name in names)
    return tuple(module for module in modules if hasattr(module, "render"))


def formats_of(module: ModuleType) -> tuple[str, ...]:
    """The values of ``--format`` that select this report."""
    return tuple(getattr(module, "FORMATS", (module.__name__.rsplit(".", 1)[-1],)))


def formats() -> tuple[str, ...]:
    """All values of ``--format``, sorted."""
    return tuple(sorted({word for module in discover() for word in formats_of(module)}))


def render_all(summary: Summary, wanted: Collection[str] | None = None) -> dict[str, bytes]:
    """The files of every report, by name. ``wanted``: only the files of these formats.

    If a report fails, only its files are missing and stderr gets one line: a fault of a
    drawing library must not cost the measurements. Raises ``ValueError`` if two reports
    write the same file.
    """
    files: dict[str, bytes] = {}
    for module in discover():
        kinds = set(formats_of(module))  # one report may make files of several formats
        if wanted is None and getattr(module, "ON_REQUEST", False):
            continue
        chosen = kinds if wanted is None else kinds & set(wanted)
        if not chosen:
            continue
        render: Callable[[Summary], Mapping[str, bytes]] = module.render
        try:
            content = render(summary)
        except Exception as error:  # see above
            name = module.__name__.rsplit(".", 1)[-1]
            print(f"error: report {name} was not made: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        unwanted = tuple(f".{kind}" for kind in kinds - chosen)
        content = {name: file for name, file in content.items() if not name.endswith(unwanted)}
        twice = files.keys() & content.keys()
        if twice:
            raise ValueError(f"{module.__name__} and another report both write {sorted(twice)}")
        files.update(content)
    return files
