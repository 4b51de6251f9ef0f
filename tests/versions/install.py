"""Makes the environments, once each, and keeps them outside the repository."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.command_line import ran
from tests.versions.environments import Environment

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("runner", "harness", "suites", "torchduet", "setup.py", "pyproject.toml", "README.md", "LICENSE")
EXTRAS = "huggingface,timm"
STAMP = "made-of.txt"
INSTALLED = "installed.txt"
INSTALL_S = 3600.0

Say = Callable[[str], None]


class CannotBeMade(Exception):
    """Why there is no such environment here, as one sentence."""


class NoInterpreter(CannotBeMade):
    """This machine has no such Python: nothing is wrong, and nothing can be said."""


def interpreter(version: str) -> Path:
    """A Python of this version that works and can make environments; or ``NoInterpreter``."""
    for path in _candidates(version):
        program = "import sys, ensurepip; print(*sys.version_info[:2], sep='.'); print(sys.executable)"
        answer = ran(path, "-c", program)
        own_version, _, executable = answer.stdout.strip().partition("\n")
        if own_version == version:
            return Path(executable)  # itself, where the path was a script that starts it
    raise NoInterpreter(f"there is no Python {version} that works, on PATH or among pyenv's")


def _candidates(version: str) -> Iterator[Path]:
    names = (f"python{version}", "python3")
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        for name in names:
            if (path := Path(folder) / name).is_file():
                yield path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from sorted(pyenv.glob(f"{version}.*/bin/python"))


def build_wheel(folder: Path) -> Path:
    """This checkout as a wheel, built of a copy: the checkout stays as it is."""
    with tempfile.TemporaryDirectory(prefix="torchduet-wheel-") as place:
        for name in SOURCES:
            source, copy = ROOT / name, Path(place) / name
            if source.is_dir():
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, copy)
        _checked([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), place])
    (wheel,) = folder.glob("torchduet-*.whl")
    return wheel


def environment_python(environment: Environment, cache: Path, wheel: Path, say: Say) -> Path:
    """The environment's interpreter, with this wheel in it. It is made where it is not there as wanted."""
    folder = cache / environment.name
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f".{environment.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _environment_python(environment, folder, wheel, say)


def _environment_python(environment: Environment, folder: Path, wheel: Path, say: Say) -> Path:
    python = folder / "bin" / "python"
    stamp = folder / STAMP
    wanted = _stamp_of(environment, wheel)
    if not python.exists() or not stamp.exists() or stamp.read_text() != wanted:
        base = interpreter(environment.python)
        say(f"making it in {folder} with {base}")
        shutil.rmtree(folder, ignore_errors=True)
        _checked([str(base), "-m", "venv", str(folder)])
        words = list(environment.requirements)
        if environment.constraints:
            words = ["-c", str(ROOT / "constraints.txt"), *words]
        if not environment.worker:
            words.append(f"torchduet[{EXTRAS}] @ {wheel.as_uri()}")
        _checked([*_installer(python), *words])
        stamp.write_text(wanted)
    installed = folder / INSTALLED
    contents = _contents(wheel)
    if not environment.worker and (not installed.exists() or installed.read_text() != contents):
        _checked([*_installer(python), "--no-deps", "--force-reinstall", str(wheel)])
        installed.write_text(contents)
    return python


def _installer(python: Path) -> list[str]:
    """uv where it is at hand: it links what two environments share instead of copying it."""
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]
    return [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def _stamp_of(environment: Environment, wheel: Path) -> str:
    """What the environment depends on: when it differs, the environment is made anew."""
    lines = [f"Python {environment.python}", *environment.requirements]
    if environment.constraints:
        lines.append((ROOT / "constraints.txt").read_text())
    if not environment.worker:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            metadata = archive.read(name).decode().splitlines()
        lines += [line for line in metadata if line.startswith(("Requires-Dist", "Requires-Python"))]
    return "\n".join(lines) + "\n"


def _contents(wheel: Path) -> str:
    """The same for two wheels of the same files: another process may be using what is installed."""
    with zipfile.ZipFile(wheel) as archive:
        return "".join(sorted(f"{entry.CRC:08x} {entry.filename}\n" for entry in archive.infolist()))


def _checked(words: list[str]) -> None:
    try:
        done = ran(*words, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        raise CannotBeMade(f"installing took more than {INSTALL_S:g} s") from None
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise CannotBeMade(" ".join(lines[-6:]) or f"{words[0]} ended with {done.returncode}")
