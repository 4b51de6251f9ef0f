"""With what a worker is started: its command, its environment variables and the folder of its code."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.loading.python_file import OUTER, PACKAGES
from harness.loading.suite_files import ROOT
from harness.worker.limits import GLIBC_SETTINGS, thread_variables
from runner.store.invocation import WORKER

NOT_OURS = ("PYTHONHOME", "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__", "VIRTUAL_ENV")
"""Variables with which a worker would use the packages of the parent's interpreter."""


def base_environment(current: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment variables for a worker in another environment."""
    return {name: value for name, value in current.items() if name not in NOT_OURS}


def worker_command(python: str = sys.executable) -> list[str]:
    return [python, "-u", "-m", WORKER]


def worker_environment(
    threads: int | None,
    base: Mapping[str, str] = os.environ,
    *,
    online: bool = False,
    malloc: Mapping[str, str] = GLIBC_SETTINGS,
    caches: Path | None = None,
) -> dict[str, str]:
    """The worker's environment variables: ``base``, this program's path, settings of malloc, threads.

    Unless ``online``, model libraries do not use the network. ``malloc``: variables of malloc, where ``base``
    does not set them. ``caches`` is the folder of torch's compile caches.
    """
    theirs = filter(None, base.get("PYTHONPATH", "").split(os.pathsep))  # a worker runs in another folder
    paths = (str(code_folder()), str(Path.cwd()), *map(os.path.abspath, theirs))
    environment = {**malloc, **base, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment |= {"HF_HUB_OFFLINE": "0", "HF_HUB_ETAG_TIMEOUT": "10"} if online else {"HF_HUB_OFFLINE": "1"}
    environment |= thread_variables(threads)
    if caches is not None:
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(caches / "inductor")
        environment["TRITON_CACHE_DIR"] = str(caches / "triton")
    return environment


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
    """The folder from which a worker imports this program: of a checkout, ``root`` itself.

    An installed package ``root`` is beside the parent's torch, which a worker of another environment must not
    import: it gets a folder with a link to the package alone. If the link cannot be made, the folder that
    the package is installed in: only other environments need the link.
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
