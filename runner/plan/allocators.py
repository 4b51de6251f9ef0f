"""``--allocator``: the malloc of workers, with which settings, and libraries that replace it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

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


def malloc_settings(word: str) -> Mapping[str, str]:
    """The environment variables of malloc for this allocator; none for the system's as it comes."""
    return {} if word == SYSTEM else GLIBC_SETTINGS


@cache
def _find(name: str) -> str | None:
    from ctypes.util import find_library  # runs ldconfig: slow, and rarely needed

    return find_library(name)


def library_of(
    word: str, find: Callable[[str], str | None] = _find, asked: str = "--allocator"
) -> str | None:
    """The library to preload for this allocator; None for the system's.

    Raises ``UsageError``, which begins with ``asked``, if the library is not installed.
    """
    if word not in LIBRARIES:
        return None
    names, packages = LIBRARIES[word]
    library = next(filter(None, map(find, names)), None)
    if library is None:
        raise UsageError(f"{asked}: {word} is not installed here; install it ({packages}), or leave this out")
    return library
