"""Suites by name: ``suites/<name>.py`` of this project, or a path to a file of the user's own.

A suite offers ``cases(mode, device_type) -> tuple[Case, ...]``, cheap and free
of torch, and ``build(case) -> Workload``. Used by the runner to plan and by
the worker to build, so that neither side knows a suite by import.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def suite_names() -> tuple[str, ...]:
    """The project's own suites, sorted. Imports none of them."""
    return tuple(sorted(p.stem for p in (ROOT / "suites").glob("*.py") if not p.stem.startswith("_")))


def load_suite(name: str) -> ModuleType:
    """Imports a suite. ``LookupError`` if there is no such suite or file; the suite may raise its own."""
    if name.endswith(".py"):
        return _load_file(Path(name))
    if name not in suite_names():
        raise LookupError(f"there is no suite called {name!r}")
    return importlib.import_module(f"suites.{name}")


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise LookupError(f"there is no suite file {str(path)!r}")
    name = f"torchduet_suite_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LookupError(f"{str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look a class's module up there
    spec.loader.exec_module(module)
    return module
