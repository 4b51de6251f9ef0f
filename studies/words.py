"""The data beside the code: ``words.toml``, and ``published.toml`` with what the sources published."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from harness.loading.toml_file import read_toml


@cache
def tables(name: str) -> Mapping[str, Any]:
    """The tables of ``words.toml`` or ``published.toml``."""
    return read_toml(Path(__file__).with_name(f"{name}.toml"))


def published(name: str) -> tuple[dict[str, str], ...]:
    """The rows of a table of figures that a source published, by the heads of its columns, as text."""
    table = tables("published")[name]
    return tuple(dict(zip(table["columns"], row, strict=True)) for row in table["rows"])
