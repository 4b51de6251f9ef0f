"""Compilers: one module for each, discovered by file name.

A module offers

    compile(program: Program) -> Compiled     may raise whatever its compiler raises

and, if the compiler does not work on every device and in every mode,

    why_unavailable(device_type: str) -> str | None    a reason such as "openvino is not installed"
    MODES: tuple[str, ...]                              the supported modes, such as ("inference",)
    SETTINGS: tuple[str, ...]                           the kinds of own settings (``settings.own``)
    PACKAGES = True                                     ``compile(program, package)`` keeps or loads this file

``program.options`` are the user's options. A module patches configuration in a context and never assigns
it. ``--list-compilers`` shows the first line of the module's docstring. Modules are imported only in a
worker's interpreter. Shared code is in ``shared``; compilers that differ by arguments are rows of
``shared/presets.toml``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from harness.backends.settings.candidates import parts_of
from harness.loading.toml_file import read_toml

if TYPE_CHECKING:
    from harness.program import Compiled, Program


def backend_names() -> tuple[str, ...]:
    """Names of the compilers that have a file or a preset here, sorted. Imports none of them."""
    files = (p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))
    return tuple(sorted((*files, *_presets())))


def load_backend(name: str, source: str = "", package: Path | None = None) -> Callable[[Program], Compiled]:
    """The ``compile`` function of the backend called ``name``, with its own settings (``inductor[...]``).

    ``source``: the place of a user's own compiler, ``file.py:function``. A name without a file here may be
    registered with ``torch.compile``. ``LookupError`` for any other name, ``ValueError`` for a setting.
    ``package``: the file that a compiler which makes packages keeps, or loads.
    """
    compiler, settings = parts_of(name)
    module = _module(compiler, source)
    compile_it = cast("Callable[[Program], Compiled]", module.compile)
    if package is not None and getattr(module, "PACKAGES", False):
        compile_it = partial(module.compile, package=package)
    return _settings().with_settings(compile_it, settings, _takes(module)) if settings else compile_it


def modes_of(name: str, source: str = "") -> tuple[str, ...]:
    """The modes that the compiler supports; () for all. Raises ``LookupError`` as above."""
    return tuple(getattr(_module(parts_of(name)[0], source), "MODES", ()))


def why_unavailable(name: str, device_type: str, source: str = "") -> str | None:
    """Why the compiler cannot be used here; None if it can. Raises ``LookupError`` as above."""
    why = getattr(_module(parts_of(name)[0], source), "why_unavailable", None)
    return why_no_own_setting(name, source) or (None if why is None else str(why(device_type) or "") or None)


def why_no_own_setting(name: str, source: str = "") -> str | None:
    """Why the compiler rejects a setting in brackets; None without such settings, and if it takes all."""
    compiler, settings = parts_of(name)
    if not settings:
        return None
    try:
        _settings().own_settings(settings, _takes(_module(compiler, source)))
    except ValueError as error:
        return f"{name}: {error}"
    return None


def _takes(module: Any) -> tuple[str, ...]:
    return tuple(getattr(module, "SETTINGS", ()))


def why_no_such_setting(inductor_config: Sequence[str]) -> str | None:
    """Why inductor rejects one of these settings ("key=value"); None if it accepts all."""
    if not inductor_config:
        return None
    try:
        _shared("options").inductor_settings(inductor_config)
    except ValueError as error:
        return str(error)
    return None


def describe(name: str, source: str = "") -> str:
    """The first line of the compiler's docstring. Raises ``LookupError`` as above."""
    return (_module(parts_of(name)[0], source).__doc__ or name).strip().splitlines()[0]


def own_backend(name: str, function: str | Callable[..., Any]) -> Callable[[Program], Compiled]:
    """The ``compile`` of a user's function, given itself or as ``file.py:function``.

    Raises ``LookupError`` with a sentence if the function is not a compiler.
    """
    own = _shared("own").Own
    compiler = own.found(name, function) if isinstance(function, str) else own.of(name, function)
    return cast("Callable[[Program], Compiled]", compiler.compile)


def registered() -> tuple[str, ...]:
    """Names that are registered with ``torch.compile`` in this process. Imports torch."""
    names: tuple[str, ...] = _shared("registered").registered_names()
    return names


def _module(name: str, source: str) -> Any:
    if source:
        return _shared("own").Own.found(name, source)
    if name in _presets():
        return _of_preset(name, **_presets()[name])
    if name in backend_names():
        return importlib.import_module(f"{__name__}.{name}")
    return _shared("registered").Registered.called(name, backend_names())


@cache
def _presets() -> Mapping[str, Mapping[str, Any]]:
    return read_toml(Path(__file__).parent / "shared" / "presets.toml")


def _of_preset(name: str, about: str, made_by: str, arguments: Mapping[str, Any] | None = None) -> Any:
    """Replaces the module of a compiler."""
    shared = _shared(made_by)
    return SimpleNamespace(
        __doc__=about,
        MODES=getattr(shared, "MODES", ()),
        compile=partial(shared.compile_as, name=name, **(arguments or {})),
        why_unavailable=getattr(shared, "why_unavailable", None),
        SETTINGS=getattr(shared, "SETTINGS", ()),
    )


def _shared(file: str) -> Any:
    """Imported by name: the runner imports this module, and must not reach torch through it."""
    return importlib.import_module(f"{__name__}.shared.{file}")


def _settings() -> Any:
    return importlib.import_module(f"{__name__}.settings.own")
