"""Suites by name: ``suites/<name>.py`` of this project, or a path to a file of the user's own.

A suite offers

    cases(setting) -> tuple[Case, ...]     its curated cases: fast, without torch
    build(case) -> Workload                the model, in float32, with the seed already set

and, if its library has more models than the suite lists,

    find(pattern) -> tuple[str, ...]       names of models that match a name or glob; may import the
                                           library; ``LookupError`` with a sentence if nothing matches
    case_for(name, setting) -> Case        the case of such a name: fast, without torch

The runner loads this project's suites to plan, the worker every suite to build models; neither imports a
suite by a fixed name. A file of the user's own is listed by ``harness.probes.suite``, in another process.
``package.module:function`` is a suite with one model of the user's own: see ``harness.loading.own_model``.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from harness.codec import from_json, to_json
from harness.loading.own_model import OwnModel
from harness.loading.python_file import load_file, offer_names
from harness.loading.torchvision_ops import mend_torchvision
from harness.schema import LOSSES, SCALES, Case, Setting
from harness.settings import is_own_model

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


def cases_of(name: str, setting: Setting, models: Sequence[str] | None = None) -> tuple[Case, ...]:
    """The curated cases of a suite, or those of these models of its library, with lists as tuples.

    ``TypeError`` or ``ValueError`` if one cannot be measured.
    """
    suite: Any = load_suite(name)
    offered = suite.cases(setting) if models is None else [suite.case_for(m, setting) for m in models]
    cases = tuple(_checked(case, name, setting) for case in offered)
    twice = [model for model, count in Counter(case.name for case in cases).items() if count > 1]
    if twice:
        raise ValueError(f"cases() gave {twice[0]!r} more than once")
    return cases


def _checked(case: object, suite: str, setting: Setting) -> Case:
    if not isinstance(case, Case):
        raise TypeError(f"cases() gave a {type(case).__name__} where a harness.schema.Case belongs")
    try:
        case = from_json(Case, to_json(case))
        json.dumps(to_json(case), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError(f"a text of the case {case.name!r} is not valid Unicode") from None
    except ValueError as error:
        raise ValueError(f"of the case {case.name!r}, {error}") from None
    for what, value, known in (
        ("mode", case.mode, (setting.mode,)),
        ("scale", case.scale, SCALES),
        ("loss", case.loss, LOSSES),
    ):
        if value not in known:
            words = " or ".join(to_json(known))
            raise ValueError(f"the {what} of the case {case.name!r} is {to_json(value)}, not {words}")
    if not case.name.strip():
        raise ValueError(f"the name of a case is {case.name!r}; give it a name")
    if case.batch_size is not None and case.batch_size < 1:
        raise ValueError(f"the batch size of the case {case.name!r} is {case.batch_size}; give 1 or more")
    if case.suite != suite:
        raise ValueError(f"the suite of the case {case.name!r} is {case.suite!r}; write suite=__file__")
    return case
