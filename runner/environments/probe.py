"""What an interpreter says of itself, and the sentence why it cannot be used."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.labels import plain
from runner.worker_process import exit_name, worker_environment

TIMEOUT_S = 180.0  # importing torch from a cold disk
OLDEST_PYTHON = (3, 10)
OLDEST_TORCH = (2, 0)
LONGEST_REASON = 200  # characters
NOT_COMPARED = ("cuda_devices", "prefix")
"""Facts in which two names for one environment may differ: see ``same``."""

NOT_OURS = ("PYTHONHOME", "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__", "VIRTUAL_ENV")
"""Variables that tie an interpreter to the packages of another one: ours."""

Facts = Mapping[str, Any]


def base_environment(current: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that a worker in another environment starts from."""
    return {name: value for name, value in current.items() if name not in NOT_OURS}


def probe(python: Path, name: str, flag: str = "--envs") -> Facts:
    """What it says. ``UsageError`` with one sentence where it cannot be a worker."""
    if not python.exists():
        raise UsageError(f"{flag}: {name}: there is no {plain(str(python))}; give the path of a Python")
    lines, code, errors = _run(python, name, flag)
    facts: dict[str, Any] = {}
    for line in lines:
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            facts.update(found if isinstance(found, dict) else {})
    if "python" not in facts:
        raise UsageError(f"{flag}: {name}: {plain(str(python))} is no Python that works ({_last(errors)})")
    why_not = _why_not(facts, code, errors)
    if why_not is not None:
        raise UsageError(f"{flag}: {name}: {why_not}")
    return facts


def _run(python: Path, name: str, flag: str) -> tuple[list[str], int, str]:
    shown = plain(str(python))
    try:
        done = subprocess.run(
            [str(python), "-m", "harness.probe_environment"],
            env=worker_environment(None, base_environment()),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{flag}: {name}: {shown} did not answer in {TIMEOUT_S:g} s; does it import torch by hand?"
        ) from None
    except OSError as error:
        why = f"cannot be run ({error.strerror})"
        if error.errno == errno.ENOEXEC:
            why = f"is no program for this machine ({platform.machine()})"
        raise UsageError(f"{flag}: {name}: {shown} {why}; give the path of a Python") from None
    return done.stdout.splitlines(), done.returncode, done.stderr


def _why_not(facts: Facts, code: int, errors: str) -> str | None:  # noqa: PLR0911 - one for each thing
    """What is wrong with it and what would be right; None where nothing is."""
    python = facts["python"]
    if tuple(facts["version"]) < OLDEST_PYTHON:
        return f"its Python is {python}; a worker needs {'.'.join(map(str, OLDEST_PYTHON))} or later"
    if facts["machine"] != platform.machine():
        return f"its Python is for {facts['machine']}, this machine is {platform.machine()}"
    if "torch_error" not in facts and "torch_file" not in facts:
        return f"importing its torch ends the process ({exit_name(code)}: {_last(errors)}); install it anew"
    if facts.get("torch_error"):
        reason = plain(" ".join(str(facts["torch_error"]).split()))[:LONGEST_REASON]
        return f"its torch cannot be used ({reason}); install it anew, for Python {python}"
    if "torch_error" in facts:
        return "it has no torch; install it there, or write torch==2.2.2 to have an environment made"
    if _numbers(facts.get("torch")) < OLDEST_TORCH:
        return f"its torch is {facts.get('torch')}; a worker needs 2.0 or later"
    return None


def same(one: Facts, other: Facts) -> bool:
    """Whether two interpreters are one environment: the same torch, the same versions, the same settings."""
    names = (one.keys() | other.keys()) - set(NOT_COMPARED)
    return all(one.get(name) == other.get(name) for name in names)


def versions_text(facts: Facts) -> str:
    """``torch 2.2.2+cu121, Python 3.11.7, CUDA 12.1, triton 2.2.0``"""
    named = {"torch": "torch", "python": "Python", "cuda": "CUDA"}
    named.update({name: name for name in ("triton", "transformers", "timm", "numpy")})
    return ", ".join(f"{label} {facts[name]}" for name, label in named.items() if facts.get(name))


def _numbers(version: object) -> tuple[int, ...]:
    parts = str(version).split("+", maxsplit=1)[0].split(".")[:2]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)


def _last(errors: str) -> str:
    lines = [line for line in errors.splitlines() if line.strip()]
    return plain(lines[-1].strip())[:LONGEST_REASON] if lines else "it said nothing"
