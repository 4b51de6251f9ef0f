"""Compilers: one module for each, discovered by file name.

A module offers

    compile(program: Program) -> Compiled     may raise whatever its compiler raises

and, if the compiler does not work on every device and in every mode,

    why_unavailable(device_type: str) -> str | None    a reason such as "openvino is not installed"
    MODES, DEVICES: tuple[str, ...]                     the supported ones, such as ("inference",)
    NEEDS: str                                          beside torch 2.0, for docs/COMPILERS.md
    SETTINGS: tuple[str, ...]                           the kinds of own settings (``settings.own_settings``)
    PACKAGES = True                                     ``compile(program, package)`` keeps or loads this file

``program.options`` are the user's options. A module patches configuration in a context and never assigns
it. ``--list-compilers`` shows the first line of the module's docstring. Modules are imported only in a
worker's interpreter. Shared code is in ``shared``; compilers that differ by arguments are rows of
``shared/presets.toml``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.backends.settings.candidates import parts_of
from harness.loading.toml_file import read_toml

if TYPE_CHECKING:
    from harness.program import Compile, Compiled


def backend_names() -> tuple[str, ...]:
    """Names of the compilers that have a file or a preset here, sorted. Imports none of them."""
    files = (p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))
    return tuple(sorted((*files, *_presets())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A compiler, as its module or another place describes it."""

    what: str  # the first line of its docstring
    compile: Callable[..., Compiled]
    why_unavailable: Callable[[str], str | None]
    modes: tuple[str, ...]  # (): all
    settings: tuple[str, ...]
    packages: bool

    @staticmethod
    def of(what: str, compile_it: Callable[..., Compiled], module: object = None) -> Backend:
        """``module``: where the other names are that a compiler's file may have."""
        return Backend(
            what=what.strip().splitlines()[0],
            compile=compile_it,
            why_unavailable=getattr(module, "why_unavailable", lambda _: None),
            modes=tuple(getattr(module, "MODES", ())),
            settings=tuple(getattr(module, "SETTINGS", ())),
            packages=getattr(module, "PACKAGES", False),
        )


def load_backend(name: str, source: str = "", package: Path | None = None) -> Compile:
    """The ``compile`` function of the backend called ``name``, with its own settings (``inductor[...]``).

    ``source``: the place of a user's own compiler, ``file.py:function``. A name without a file here may be
    registered with ``torch.compile``. ``LookupError`` for any other name, ``ValueError`` for a setting.
    ``package``: the file that a compiler which makes packages keeps, or loads.
    """
    backend, settings = backend_of(name, source), parts_of(name)[1]
    packed = package is not None and backend.packages
    compile_it = partial(backend.compile, package=package) if packed else backend.compile
    if not settings:
        return compile_it
    with_settings: Callable[..., Compile] = _module("settings.own_settings").with_settings
    return with_settings(compile_it, settings, backend.settings)


def why_unavailable(name: str, device_type: str, source: str = "") -> str | None:
    """Why the compiler cannot be used here; None if it can. Raises ``LookupError`` as above."""
    backend = backend_of(name, source)
    return why_no_own_setting(name, source) or backend.why_unavailable(device_type) or None


def why_no_own_setting(name: str, source: str = "") -> str | None:
    """Why the compiler rejects a setting in brackets; None without such settings, and if it takes all."""
    settings = parts_of(name)[1]
    if not settings:
        return None
    try:
        _module("settings.own_settings").own_settings(settings, backend_of(name, source).settings)
    except ValueError as error:
        return f"{name}: {error}"
    return None


def why_no_such_setting(inductor_config: Sequence[str]) -> str | None:
    """Why inductor rejects one of these settings ("key=value"); None if it accepts all."""
    if not inductor_config:
        return None
    try:
        _module("shared.options").inductor_settings(inductor_config)
    except ValueError as error:
        return str(error)
    return None


def registered() -> tuple[str, ...]:
    """Names that are registered with ``torch.compile`` in this process. Imports torch."""
    names: tuple[str, ...] = _module("shared.dynamo").registered_names()
    return names


def backend_of(candidate: str, source: str = "") -> Backend:
    """The candidate's compiler. Raises ``LookupError`` as above."""
    name = parts_of(candidate)[0]
    if source:
        return Backend.of(*_module("shared.own_compiler").compiler(name, source))
    if name in _presets():
        preset = _presets()[name]
        file, _, kind = preset["made_by"].partition(".")
        module = _module(f"shared.{file}")
        maker = getattr(module, kind) if kind else module
        compile_it = partial(maker.compile_as, name=name, **preset.get("arguments", {}))
        return replace(Backend.of(preset["about"], compile_it, maker), modes=tuple(preset.get("modes", ())))
    if name in backend_names():
        module = _module(name)
        return Backend.of(module.__doc__ or name, module.compile, module)
    module = _module("shared.dynamo")
    module.check(name, backend_names())
    what = f"The backend {name!r} that is registered with torch.compile."
    return Backend.of(what, partial(module.compile_with_dynamo, backend=name), module)


@cache
def _presets() -> Mapping[str, Mapping[str, Any]]:
    return read_toml(Path(__file__).parent / "shared" / "presets.toml")


def _module(name: str) -> Any:
    """Imported by name: the runner imports this module, and must not reach torch through it."""
    return importlib.import_module(f"{__name__}.{name}")
