"""A Python file of the user's own, imported by its path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

VERSION = "__torchduet_version__"  # attribute of a loaded file: its path and modification time


def load_file(path: Path) -> ModuleType:
    """The file as a module. ``LookupError`` if there is none."""
    if not path.is_file():
        raise LookupError(f"there is no file {str(path)!r}")
    name = f"torchduet_file_{path.stem}"
    version = (str(path.resolve()), path.stat().st_mtime_ns)
    known = sys.modules.get(name)
    if known is not None and getattr(known, VERSION, None) == version:
        return known  # a file may register names with torch, which can be done only once
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LookupError(f"{str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look up a class's module there
    spec.loader.exec_module(module)
    setattr(module, VERSION, version)
    return module
