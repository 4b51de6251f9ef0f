"""A Python file of the user's own: how it is imported, and how it imports this program.

It writes ``from harness.schema import Case`` in a checkout and with an installed program. The wheel has
``harness`` and ``suites`` inside the package ``torchduet`` (``setup.py``), so that a user can have packages
of these names, too. There, ``offer_names`` makes the short names work while nothing else has them: they are
other names of the same modules.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

PACKAGES = ("harness", "suites")
OUTER = __name__.rpartition(f"{PACKAGES[0]}.")[0]
"""``torchduet.`` in the wheel, nothing in a checkout."""
VERSION = "__torchduet_version__"  # attribute of a loaded file: its path and modification time


def load_file(path: Path) -> ModuleType:
    """The file as a module. ``LookupError`` if there is none."""
    if not path.is_file():
        raise LookupError(f"there is no file {str(path)!r}")
    place = hashlib.sha256(str(path.resolve()).encode(errors="surrogatepass")).hexdigest()[:8]
    name = f"torchduet_file_{path.stem}_{place}"  # two files may have one name
    version = (str(path.resolve()), path.stat().st_mtime_ns)
    known = sys.modules.get(name)
    if known is not None and getattr(known, VERSION, None) == version:
        return known  # a file may register names with torch, which can be done only once
    module = loaded(name, path)
    setattr(module, VERSION, version)
    return module


def loaded(name: str, path: Path) -> ModuleType:
    """The file as the module ``name``; an ``__init__.py`` as the package."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LookupError(f"{str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # relative imports, dataclasses and pickle look it up there
    spec.loader.exec_module(module)
    return module


def offer_names() -> None:
    """Makes ``harness`` and ``suites`` importable by these names. Does nothing in a checkout, or again."""
    if OUTER and not any(isinstance(finder, ShortNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, ShortNames())  # before the one that would load a module a second time


class ShortNames(MetaPathFinder, Loader):
    """Finds ``harness.schema`` as ``torchduet.harness.schema``, unless the user has a ``harness``."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top not in PACKAGES:
            return None
        if rest:
            ours = sys.modules.get(top) is sys.modules.get(f"{OUTER}{top}")
        else:
            ours = PathFinder.find_spec(top) is None
        if not ours or importlib.util.find_spec(f"{OUTER}{fullname}") is None:
            return None
        return ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """The import system returns what ``sys.modules`` has under the name after this call."""
        sys.modules[module.__name__] = importlib.import_module(f"{OUTER}{module.__name__}")
