"""``--allocator``: the malloc of workers, with which settings, and libraries that replace it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.worker.limits import GLIBC_SETTINGS
from runner.errors import UsageError

DEFAULT = "default"
SYSTEM = "system"
BOTH = "both"
"""Processes with DEFAULT, then processes with SYSTEM."""
# allocator: its library's names without "lib" and ".so", and the packages that contain it
LIBRARIES = {
    "jemalloc": (("jemalloc",), "libjemalloc2 on Debian and Ubuntu, jemalloc elsewhere"),
    "tcmalloc": (
        ("tcmalloc_minimal", "tcmalloc"),
        "libtcmalloc-minimal4 on Debian and Ubuntu, gperftools elsewhere",
    ),
}
FOLDERS = tuple(
    Path(folder)
    for folder in (
        *("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"),
        *("/usr/local/lib", "/opt/homebrew/lib"),
    )
)

Find = Callable[[str], str | None]


def malloc_settings(word: str) -> Mapping[str, str]:
    """The environment variables of malloc for this allocator; none for the system's as it comes."""
    return {} if word == SYSTEM else GLIBC_SETTINGS


def library_of(
    word: str, find: Find | None = None, folders: Sequence[Path] = FOLDERS, asked: str = "--allocator"
) -> str | None:
    """The library to preload for this allocator; None for the system's.

    Raises ``UsageError``, which begins with ``asked``, if the library is not installed.
    """
    if word not in LIBRARIES:
        return None
    names, packages = LIBRARIES[word]
    for name in names:
        for folder in folders:
            files = sorted(folder.glob(f"lib{name}.so*"))
            if files:
                return str(files[0])
    for name in names:
        if (library := (find or _find)(name)) is not None:
            return library
    raise UsageError(f"{asked}: {word} is not installed here; install it ({packages}), or leave this out")


def _find(name: str) -> str | None:
    from ctypes.util import find_library  # runs the C compiler and ldconfig: slow, and rarely needed

    return find_library(name)
