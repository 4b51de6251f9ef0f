"""The folder from which a worker imports this program. It contains no other packages.

An installed program is in ``site-packages``, together with the parent's torch. A worker of another
environment must not import modules from there: it would import the parent's torch instead of its own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from harness.loading.suite_files import ROOT

PACKAGES = ("harness", "suites")
SHARED = ("site-packages", "dist-packages")


def cache_root(current: Mapping[str, str] = os.environ) -> Path:
    """This program's cache folder: in ``XDG_CACHE_HOME``, or in ``~/.cache``."""
    root = current.get("XDG_CACHE_HOME", "")
    return (Path(root) if root.startswith("/") else Path.home() / ".cache") / "torchduet"


def code_folder(root: Path = ROOT, current: Mapping[str, str] = os.environ) -> Path:
    """``root``, or a folder of links into it if ``root`` also contains other packages.

    Also ``root`` if the links cannot be made, because only other environments need them.
    """
    if root.name not in SHARED:
        return root
    folder = cache_root(current) / "code" / hashlib.sha256(str(root).encode()).hexdigest()[:8]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in PACKAGES:
            link = folder / name
            if not link.exists():
                partial = folder / f".{name}.{os.getpid()}"
                partial.symlink_to(root / name)
                partial.replace(link)  # atomic: another run may make the same link
    except OSError:
        return root
    return folder
