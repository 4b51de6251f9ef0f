"""Settings of torch's compilers that come from outside: from environment variables, or from the model's code.

torch reads most variables when it imports a configuration, as that setting's default. So a second copy of the
configuration is made without the variables of torch, and what differs from it was set from outside.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from harness.loading.python_file import loaded

MODULES = ("torch._dynamo.config", "torch._functorch.config", "torch._inductor.config")
NO_CONDITION = ("_dir", "_root", "trace.", "debug", "verbose", "vec_isa_ok")
"""Parts of the names of settings of where torch writes, how much, and what it checks: they change no code."""


def set_from_outside() -> str:
    """``inductor.freezing=True, ...``: what differs from torch without variables; "" if nothing does."""
    settings = []
    for name in MODULES:
        if name in sys.modules:  # nothing is set in a module that nothing has imported
            plain, space = plain_settings(name), name.split(".")[1].strip("_")
            settings += [
                f"{space}.{key}={getattr(value, '__qualname__', repr(value))}"
                for key, value in sorted(settings_in_force(name).items())
                if key in plain and plain[key] != value and not any(part in key for part in NO_CONDITION)
            ]
    return ", ".join(settings)


def settings_in_force(name: str) -> Mapping[str, Any]:
    """The settings of this configuration in this process."""
    return _read(importlib.import_module(name))


def _read(config: Any) -> Mapping[str, Any]:
    # torch 2.0 has no get_config_copy; that of 2.1 cannot copy its set of modules, to which torch itself adds
    read: Callable[[], Any] = getattr(config, "get_config_copy", getattr(config, "to_dict", dict))
    try:
        return dict(read())
    except TypeError:
        return {key: value for key, value in config._config.items() if not isinstance(value, set)}


@cache
def plain_settings(name: str) -> Mapping[str, Any]:
    """What the settings are without torch's variables. {} if torch cannot make a second copy."""
    spec, copy = importlib.util.find_spec(name), f"{name}_plain"
    assert spec is not None and spec.origin is not None  # noqa: PT018 - torch has this file
    try:
        with _without_variables(), contextlib.suppress(Exception):
            return _read(loaded(copy, Path(spec.origin)))
    finally:
        sys.modules.pop(copy, None)
    return {}


@contextlib.contextmanager
def _without_variables() -> Iterator[None]:
    hidden = {name: os.environ.pop(name) for name in [*os.environ] if "TORCH" in name}
    try:
        yield
    finally:
        os.environ.update(hidden)
