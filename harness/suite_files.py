"""Suites by name: ``suites/<name>.py`` of this project, or a path to a file of the user's own.

A suite offers

    cases(setting) -> tuple[Case, ...]     its curated cases: at once, without torch
    build(case) -> Workload                the model, in float32, with the seed already set

and, where a library has more models than the suite lists,

    find(pattern) -> tuple[str, ...]       their names, by name or glob: may import the library;
                                           ``LookupError`` with a sentence when nothing fits
    case_for(name, setting) -> Case        the case of such a name: at once, without torch

Used by the runner to plan and by the worker to build, so that neither side
knows a suite by import. ``package.module:function`` is a suite of one model,
the user's own: ``harness.own_model`` has its rules.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

from harness.own_model import OwnModel, is_own_model
from harness.schema import Case, Setting

if TYPE_CHECKING:
    from harness.workload import Workload

ROOT = Path(__file__).resolve().parent.parent


class Suite(Protocol):
    """What every suite offers; ``find`` and ``case_for`` are looked for by name."""

    def cases(self, setting: Setting) -> tuple[Case, ...]: ...

    def build(self, case: Case) -> Workload: ...


def suite_names() -> tuple[str, ...]:
    """The project's own suites, sorted. Imports none of them."""
    return tuple(sorted(p.stem for p in (ROOT / "suites").glob("*.py") if not p.stem.startswith("_")))


def load_suite(name: str) -> Suite:
    """Imports a suite. ``LookupError`` if there is no such suite or file; the suite may raise its own."""
    if is_own_model(name):
        return OwnModel(name)
    if name.endswith(".py"):
        return cast("Suite", load_file(Path(name)))
    if name not in suite_names():
        raise LookupError(f"there is no suite called {name!r}")
    return cast("Suite", importlib.import_module(f"suites.{name}"))


def load_file(path: Path) -> ModuleType:
    """A file of the user's own as a module. ``LookupError`` if there is none."""
    if not path.is_file():
        raise LookupError(f"there is no file {str(path)!r}")
    name = f"torchduet_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LookupError(f"{str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look a class's module up there
    spec.loader.exec_module(module)
    return module
