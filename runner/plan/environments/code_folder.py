"""The folder from which a worker imports this program. It contains no other packages.

An installed program is in ``site-packages``, together with the parent's torch. A worker of another
environment must not import modules from there: it would import the parent's torch instead of its own.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from harness.loading.python_file import OUTER, PACKAGES
from harness.loading.suite_files import ROOT


def cache_root(current: Mapping[str, str] = os.environ) -> Path:
    """This program's cache folder: in ``XDG_CACHE_HOME``, or in ``~/.cache``. ``OSError`` without a home."""
    root = current.get("XDG_CACHE_HOME", "")
    if root.startswith("/"):
        return Path(root) / "torchduet"
    try:
        return Path.home() / ".cache" / "torchduet"
    except RuntimeError as error:  # a user without an entry and without HOME, as in some containers
        raise OSError(errno.ENOENT, "no home folder: HOME is not set", "~/.cache") from error


def code_folder(
    root: Path = ROOT, current: Mapping[str, str] = os.environ, *, installed: bool = bool(OUTER)
) -> Path:
    """A checkout ``root`` itself. For an installed package ``root``: a folder with a link to it alone.

    If the link cannot be made, the folder that the package is installed in: only other environments need
    the link.
    """
    if not installed:
        return root
    try:
        folder = cache_root(current) / "code" / hashlib.sha256(str(root).encode()).hexdigest()[:8]
        link = folder / root.name
        folder.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            partial = folder / f".{root.name}.{os.getpid()}"
            partial.symlink_to(root)
            partial.replace(link)  # atomic: another run may make the same link
    except OSError:
        return root.parent
    return folder


def copy_code(folder: Path) -> None:
    """Copies the packages that a parent or a worker needs into ``folder``, and no other files."""
    copies = {ROOT.name: ROOT} if OUTER else {name: ROOT / name for name in (*PACKAGES, "runner")}
    for name, package in copies.items():
        shutil.copytree(package, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
