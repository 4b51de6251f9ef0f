"""The tables of the suites: what the TOML file beside a suite says of each of its cases."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.loading.toml_file import read_toml


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One table or row. The file of the suite explains the fields that its tables have."""

    published_batch: int = 1
    parameters: int = 0
    parameters_small: int = 0  # 0: as many as at full scale
    source: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    cpu_tags: tuple[str, ...] = ()
    gone: str = ""
    skip: Mapping[str, str] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    tolerance_reason: str = ""
    small: Mapping[str, Any] = field(default_factory=dict)
    tiny: Mapping[str, Any] = field(default_factory=dict)
    # of huggingface
    model_class: str = ""
    sequence: int | None = None
    checkpoint: str | None = None
    prompt_tokens: int | None = None
    new_tokens: int | None = None
    # of timm_models
    architecture: str = ""
    architecture_reason: str = ""
    resolution: int = 0
    # of tiny_gpt
    implementation: str = ""
    loss: str = ""
    cpu_batch: Mapping[str, int] = field(default_factory=dict)
    cpu_batch_reason: str = ""
    # of ops
    operation: str = ""
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    shares: bool | None = None
    package: str = ""

    def parameters_at(self, scale: str) -> int | None:
        """Trainable parameters at ``scale``; None if they are not counted."""
        counted = {"full": self.parameters, "small": self.parameters_small or self.parameters}
        return counted.get(scale) or None


@functools.cache
def entries_of(suite: str, **usual: Any) -> Mapping[str, Entry]:
    """By case name, in their order. ``suite``: its file; ``usual``: the fields that a table may omit.

    A table ``config`` has configurations by case name.
    """
    tables = read_toml(Path(suite).with_suffix(".toml"))
    for name, config in tables.pop("config", {}).items():
        tables[name]["config"] = config
    return {name: Entry(**{**usual, **_with_tuples(table)}) for name, table in tables.items()}


def _with_tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
