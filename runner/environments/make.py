"""Virtual environments for requirements, made once and kept: ``~/.cache/torchduet/envs``.

One is made under another name and gets its own when it is whole, so a half-made one
is never used. A lock keeps two runs from making the same one at once.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from runner.environments.probe import base_environment, probe
from runner.errors import UsageError
from runner.labels import plain

Say = Callable[[str], None]
"""Tells the person how it goes, a line at a time."""

Install = Callable[[Path, Sequence[str], Say], None]
"""Makes an environment of these requirements in a folder that is not there yet; raises ``UsageError``."""

Check = Callable[[Path, str], object]
"""Raises ``UsageError`` for an interpreter that cannot be used."""

PROGRESS = re.compile(r"^\s*(Collecting|Downloading|Installing collected packages|Successfully installed)\b")
NO_VERSION = re.compile(r"satisfies the requirement (?P<what>\S+).*\(from versions: (?P<versions>.*?)\)")
SHOWN_VERSIONS = 4
LONGEST_LINE = 110
LONGEST_REASON = 200


def cache_folder(current: Mapping[str, str] = os.environ) -> Path:
    """Where they are kept: below ``XDG_CACHE_HOME``, or ``~/.cache``."""
    root = current.get("XDG_CACHE_HOME", "")
    return (Path(root) if root.startswith("/") else Path.home() / ".cache") / "torchduet" / "envs"


def key_of(requirements: Sequence[str], python: str = sys.version) -> str:
    """The folder's name: different for other requirements, another Python or another machine."""
    words = "_".join(requirements)
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-.")[:60]
    whole = "\0".join((*sorted(requirements), python, platform.machine()))
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{slug}-py{sys.version_info[0]}.{sys.version_info[1]}-{digest}"


def made(
    name: str,
    requirements: Sequence[str],
    say: Say,
    install: Install | None = None,
    check: Check = probe,
) -> Path:
    """The interpreter of the environment with these requirements, made now if it is not there.

    ``UsageError`` where it cannot be made; nothing of it is then left.
    """
    folder = cache_folder() / key_of(requirements)
    python = folder / "bin" / "python"
    if python.exists():
        say(f"{name}: made before, in {folder}")
        return python
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder, lambda: say(f"{name}: another run is making it; waiting")):
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
        shutil.rmtree(left, ignore_errors=True)  # of a run that was killed: we hold the lock
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    say(f"{name}: making an environment with {' '.join(requirements)}, once, in {folder}")
    try:
        install(partial, requirements, lambda line: say(f"{name}: {line}"))
        check(partial / "bin" / "python", name)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _alone(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """One process at a time makes this environment."""
    with folder.with_name(f".{folder.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks: renaming keeps what is made whole all the same
        yield


def install_with_pip(folder: Path, requirements: Sequence[str], say: Say) -> None:
    """``python -m venv`` and ``pip install`` with this program's Python and the person's pip settings."""
    environment = base_environment()
    environment.pop("PYTHONPATH", None)
    created = subprocess.run(
        [sys.executable, "-m", "venv", str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if created.returncode:
        reason = plain(" ".join((created.stderr or created.stdout).split()))[:LONGEST_REASON]
        raise UsageError(f"--envs: python -m venv failed ({reason}); is Python's venv installed?")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    with subprocess.Popen(
        [*pip, "--no-input", "--progress-bar=off", *requirements],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as running:
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            lines.append(line.rstrip())
            if PROGRESS.match(line):
                text = plain(line.strip())
                say(text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}...")
    if running.returncode:
        raise UsageError(f"--envs: {why_pip_failed(lines, requirements)}")


def why_pip_failed(lines: Sequence[str], requirements: Sequence[str]) -> str:
    """pip's account as one sentence."""
    asked = " ".join(requirements)
    for line in lines:
        found = NO_VERSION.search(line)
        if found:
            versions = [v.strip() for v in found["versions"].split(",") if v.strip() not in ("", "none")]
            there = ", ".join(versions[-SHOWN_VERSIONS:])
            hint = f"the latest there are {there}" if there else "there is none at all"
            python = platform.python_version()
            return f"pip finds no {plain(found['what'])} for Python {python} on {platform.machine()}; {hint}"
    errors = [line for line in lines if line.startswith("ERROR:")] or [line for line in lines if line][-1:]
    reason = plain(" ".join(errors[0].removeprefix("ERROR:").split())) if errors else "it said nothing"
    return f"pip could not install {asked} ({reason[:LONGEST_REASON]})"
