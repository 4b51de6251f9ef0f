"""Suites by name: ``suites/<name>.py`` of this project, or a path to a file of the user's own.

A suite offers

    cases(setting) -> tuple[Case, ...]     its curated cases: fast, without torch
    build(case) -> Workload                the model, in float32, with the seed already set

and, if its library has more models than the suite lists,

    find(pattern) -> tuple[str, ...]       names of models that match a name or glob; may import the
                                           library; ``LookupError`` with a sentence if nothing matches
    case_for(name, setting) -> Case        the case of such a name: fast, without torch

The runner loads suites to plan, the worker to build models; neither imports a suite by a fixed name.
``package.module:function`` is a suite with one model of the user's own: see ``harness.loading.own_model``.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from harness.loading.own_model import OwnModel, is_own_model
from harness.loading.python_file import load_file, offer_names
from harness.loading.torchvision_ops import mend_torchvision
from harness.schema import Case, Setting

if TYPE_CHECKING:
    from harness.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
"""The folder of ``harness`` and ``suites``: the checkout, or the installed package ``torchduet``."""


class Suite(Protocol):
    """The functions of every suite. ``find`` and ``case_for`` are optional and looked up by name."""

    def cases(self, setting: Setting) -> tuple[Case, ...]: ...

    def build(self, case: Case) -> Workload: ...


def suite_names() -> tuple[str, ...]:
    """The project's own suites, sorted. Imports none of them."""
    return tuple(sorted(p.stem for p in (ROOT / "suites").glob("*.py") if not p.stem.startswith("_")))


def load_suite(name: str) -> Suite:
    """Imports a suite. ``LookupError`` if there is no such suite or file; its code may raise anything."""
    offer_names()
    mend_torchvision()
    if is_own_model(name):
        return OwnModel(name)
    if name.endswith(".py"):
        return cast("Suite", load_file(Path(name)))
    if name not in suite_names():
        raise LookupError(f"there is no suite called {name!r}")
    return cast("Suite", importlib.import_module(f"suites.{name}"))
