"""Reads TOML under any Python from 3.10 on, even if only torch is installed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.loading.python_file import loaded

READERS = ("tomllib", "tomli")  # the standard library's module (Python >= 3.11), or the package
COPIES = ("pip/_vendor/tomli", "setuptools/_vendor/tomli")
"""Copies of tomli that most environments have. They are loaded by path: to import pip would change which
distutils setuptools uses later, and then the import of an old Triton fails."""


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables. ``ModuleNotFoundError`` with a sentence if no reader is installed."""
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
            return loaded("torchduet_tomli", folder / "__init__.py")
    raise ModuleNotFoundError("Python before 3.11 reads TOML with the package tomli: pip install tomli")
