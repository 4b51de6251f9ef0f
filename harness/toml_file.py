"""Reads TOML under any Python from 3.10 on, also where nothing but torch is installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

READERS = ("tomllib", "tomli")  # Python's own from 3.11 on; before, the package
COPIES = ("pip/_vendor/tomli", "setuptools/_vendor/tomli")
"""Where every environment has a copy of that package. By path, for importing pip itself changes
which distutils setuptools uses later, and then an old Triton's import fails."""


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables. ``ModuleNotFoundError`` with a sentence where there is no reader."""
    tables: dict[str, Any] = _reader().loads(path.read_text(encoding="utf-8"))
    return tables


def _reader() -> ModuleType:
    for name in READERS:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    for folder in (Path(entry) / copy for entry in sys.path for copy in COPIES):
        if (folder / "__init__.py").is_file():
            return _loaded("torchduet_tomli", folder)
    raise ModuleNotFoundError("Python before 3.11 reads TOML with the package tomli: pip install tomli")


def _loaded(name: str, folder: Path) -> ModuleType:
    """A package in a folder, under another name."""
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its own modules are looked up there
    spec.loader.exec_module(module)
    return module
