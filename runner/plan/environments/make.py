"""Virtual environments for requirements, made once and kept in ``~/.cache/torchduet/envs``.

An environment is made in a folder with a temporary name, which is renamed when the environment is
complete. An incomplete environment is therefore never used. A lock prevents two runs from making the
same environment at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from runner.errors import UsageError
from runner.labels import plain
from runner.plan.environments.code_folder import cache_root
from runner.plan.environments.probe import probe
from runner.plan.interpreter import base_environment
from runner.store.run_folder import locked

Say = Callable[[str], None]
"""Prints one line of progress."""

Install = Callable[[Path, Sequence[str]], None]
"""Makes an environment with these requirements in a new folder. Raises ``UsageError``."""

Check = Callable[[Path, str], object]
"""Raises ``UsageError`` if this interpreter cannot be used."""


def key_of(requirements: Sequence[str]) -> str:
    """The environment's folder name, from its requirements, the version of Python and the machine type."""
    words = "_".join(requirements)
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-.")[:60]
    whole = "\0".join((*sorted(requirements), sys.version, platform.machine()))
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{slug}-py{sys.version_info[0]}.{sys.version_info[1]}-{digest}"


def interpreter_with(
    name: str,
    requirements: Sequence[str],
    say: Say,
    install: Install | None = None,
    check: Check = probe,
) -> Path:
    """The interpreter of the environment with these requirements. Makes the environment if needed.

    Raises ``UsageError`` if it cannot be made, and leaves no files then.
    """
    try:
        folder = cache_root() / "envs" / key_of(requirements)
    except OSError as error:
        raise UsageError(
            f"--envs: {name} cannot be made ({error.strerror}); XDG_CACHE_HOME may name a folder"
        ) from None
    python = folder / "bin" / "python"
    if python.exists():
        say(f"{name}: uses the environment in {folder}")
        return python
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder, lambda: say(f"{name}: another run is making this environment; waiting")):
            if not python.exists():
                _make(name, folder, requirements, say, install or install_with_pip, check)
    except OSError as error:
        raise UsageError(
            f"--envs: {name} cannot be made in {plain(str(folder.parent))} ({error.strerror}); "
            "XDG_CACHE_HOME may name another folder"
        ) from None
    return python


def _make(
    name: str, folder: Path, requirements: Sequence[str], say: Say, install: Install, check: Check
) -> None:
    for left in folder.parent.glob(f".{folder.name}.*.partial"):
        shutil.rmtree(left, ignore_errors=True)  # from a killed run: this process holds the lock
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    say(f"{name}: making an environment with {' '.join(requirements)}, once, in {folder}")
    try:
        install(partial, requirements)
        check(partial / "bin" / "python", name)
        if not (folder / "bin" / "python").exists():  # else it is of another run, without locks
            shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _alone(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds the lock of this environment."""
    with folder.with_name(f".{folder.name}.lock").open("w") as file:
        # without locks, the rename alone still prevents incomplete environments
        if not locked(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB):
            waiting()
            locked(file.fileno(), fcntl.LOCK_EX)
        yield


def install_with_pip(folder: Path, requirements: Sequence[str]) -> None:
    """``python -m venv`` and ``pip install`` with this program's Python and the user's pip settings.

    Their own messages go to standard error.
    """
    environment = base_environment()
    environment.pop("PYTHONPATH", None)
    pip = ("pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off", *requirements)
    for python, module in ((sys.executable, ("venv", str(folder))), (str(folder / "bin" / "python"), pip)):
        command = [python, "-m", *module]
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=2, check=False)
        if done.returncode:
            wanted = " ".join(requirements)
            raise UsageError(f"--envs: {module[0]} could not install {wanted}; its messages are above")
