"""Reads TOML under any Python from 3.10 on, also where nothing but torch is installed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

# Python's own from 3.11 on; before, the package, or the copy of it that comes with pip
READERS = ("tomllib", "tomli", "pip._vendor.tomli")


def read_toml(path: Path) -> dict[str, Any]:
    """The file's tables. ``ModuleNotFoundError`` with a sentence where there is no reader."""
    text = path.read_text(encoding="utf-8")
    for name in READERS:
        try:
            reader = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        tables: dict[str, Any] = reader.loads(text)
        return tables
    raise ModuleNotFoundError("Python before 3.11 reads TOML with the package tomli: pip install tomli")
