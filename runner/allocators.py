"""Other allocators for the worker: a library that is loaded before the system's own malloc."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from runner.errors import UsageError, unknown

DEFAULT = "default"
# word: names of its library without "lib" and ".so", and the packages that bring it
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


def allocator_asked(word: str | None) -> str:
    """The word, checked: ``UsageError`` when there is no such allocator, or it is not installed here."""
    if word is None or word == DEFAULT:
        return DEFAULT
    if word not in LIBRARIES:
        raise unknown("--allocator", word, "allocator", (DEFAULT, *LIBRARIES))
    library_of(word)
    return word


def library_of(word: str, find: Find | None = None, folders: Sequence[Path] = FOLDERS) -> str | None:
    """What to load before the system's malloc for this allocator; None for the default.

    ``UsageError`` when its library is not here.
    """
    if word == DEFAULT:
        return None
    names, packages = LIBRARIES[word]
    for name in names:
        for folder in folders:
            found = sorted(folder.glob(f"lib{name}.so*"))
            if found:
                return str(found[0])
    for name in names:
        if (found_name := (find or _find)(name)) is not None:
            return found_name
    raise UsageError(f"--allocator: {word} is not installed here; install it ({packages}), or leave this out")


def _find(name: str) -> str | None:
    from ctypes.util import find_library  # asks the compiler and ldconfig: slow, and seldom needed

    return find_library(name)
