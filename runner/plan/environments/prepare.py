"""Makes the environments of ``--envs``, checks that all work and differ, and gives them a plan's jobs.

An environment for requirements is made once and kept in ``~/.cache/torchduet/envs``: in a folder with a
temporary name, which is renamed when the environment is complete. An incomplete environment is therefore
never used. A lock prevents two runs from making the same environment at once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.devices import PLATFORMS
from harness.devices import named as device_named
from harness.failures import exit_name
from harness.schema import Environment, Job
from runner.errors import UsageError
from runner.names import plain, reason
from runner.plan.compilers import Jobs, Usable
from runner.plan.environments.spec import DIFFERENT, EnvSpec, in_environments
from runner.plan.interpreter import base_environment, cache_root, worker_environment
from runner.plan.probe import LIMIT_S, WHERE_IT_BEGAN, NoAnswer, asking_for, printed_by
from runner.store.run_folder import locked

OLDEST_PYTHON, OLDEST_TORCH = (3, 10), 2

Say = Callable[[str], None]  # prints one line of progress
Install = Callable[[Path, Sequence[str]], None]  # makes an environment with requirements in a new folder
Check = Callable[[Path, str], object]  # raises ``UsageError`` if the interpreter of this name cannot be used
Facts = Mapping[str, Any]
Checked = Mapping[Environment, Facts]
"""Environments, the reference first, and the facts that their interpreters report."""


def prepared(asked: Sequence[EnvSpec], jobs: Sequence[Job], *, skip: bool) -> tuple[Jobs, dict[str, Any]]:
    """The jobs in all environments, and the facts about these for ``run.json``. Prints progress to stderr."""
    checked = resolved(asked, lambda line: print(plain(line), file=sys.stderr, flush=True))
    check_devices(checked, list(dict.fromkeys(job.device for job in jobs)))
    facts = {environment.name: dict(facts) for environment, facts in checked.items()}

    def ask(environment: Environment, device_type: str, names: Sequence[str]) -> Mapping[str, Usable]:
        return asking_for(jobs, environment.python)(device_type, names)

    return in_environments(jobs, tuple(checked), ask, skip=skip), {"environments": facts}


def resolved(asked: Sequence[EnvSpec], say: Say) -> Checked:
    """Makes the missing ones, asks all for their facts. ``UsageError``: one is of no use, or two the same."""
    checked = {}
    for spec in asked:
        python = spec.python or interpreter_with(spec.name, spec.requirements, say)
        facts = probe(python, spec.name)
        say(f"{spec.name}: {versions_text(facts)}")
        torch = str(facts["torch"])
        checked[Environment(name=spec.name, python=str(python), asked=spec.text, torch=torch)] = facts
    for (first, facts), (second, others) in itertools.combinations(checked.items(), 2):
        names = (facts.keys() | others.keys()) - {"devices", "prefix"}
        if all(facts.get(name) == others.get(name) for name in names):
            both = f"{first.name} and {second.name} are the same environment ({versions_text(facts)})"
            raise UsageError(f"--envs: {both}; {DIFFERENT}")
    return checked


def check_devices(checked: Checked, devices: Sequence[str], instead: str = "use --devices=cpu") -> None:
    """Raises ``UsageError`` if an environment cannot use a device. ``instead``: the advice then."""
    for environment, facts in checked.items():
        for device in devices:
            known = device_named(device)
            there = int(facts.get("devices", {}).get(known.type, 0))
            if known.accelerated and (known.index or 0) >= there:
                raise UsageError(
                    f"--devices: {environment.name} (torch {environment.torch}) cannot use {device}: "
                    f"it finds {there} {known.label} devices; {instead}"
                )


def check_still_there(jobs: Sequence[Job]) -> None:
    """For ``--resume``: ``UsageError`` if an environment is missing, has another torch or lacks a device."""
    known = {env.name: env for job in jobs for env in job.environments}.values()
    checked = {env: probe(Path(env.python), env.name, "--resume") for env in known}
    for environment, facts in checked.items():
        if str(facts["torch"]) != environment.torch:
            raise UsageError(
                f"--resume: {environment.name} has torch {facts['torch']} now, but had "
                f"{environment.torch} when the run began; start a new run"
            )
    # a failure for lack of a device would count as measured
    check_devices(checked, [job.device for job in jobs if job.environments], WHERE_IT_BEGAN)


# -- making one ---------------------------------------------------------------------------------------


def key_of(requirements: Sequence[str]) -> str:
    """The environment's folder name, from its requirements, the version of Python and the machine type."""
    slug = re.sub(r"[^A-Za-z0-9.]+", "-", "_".join(requirements)).strip("-.")[:60]
    whole = "\0".join((*sorted(requirements), sys.version, platform.machine()))
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{slug}-py{sys.version_info[0]}.{sys.version_info[1]}-{digest}"


def interpreter_with(
    name: str,
    requirements: Sequence[str],
    say: Say,
    install: Install | None = None,
    check: Check | None = None,
) -> Path:
    """The interpreter of the environment, which is made if needed. ``UsageError`` leaves no files."""
    try:
        folder = cache_root() / "envs" / key_of(requirements)
    except OSError as error:
        advice = "XDG_CACHE_HOME may name a folder"
        raise UsageError(f"--envs: {name} cannot be made ({error.strerror}); {advice}") from None
    python = folder / "bin" / "python"
    if python.exists():
        say(f"{name}: uses the environment in {folder}")
        return python
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f".{folder.name}.lock").open("w") as lock:
            # without locks, the rename alone still prevents incomplete environments
            if not locked(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB):
                say(f"{name}: another run is making this environment; waiting")
                locked(lock.fileno(), fcntl.LOCK_EX)
            if not python.exists():
                say(f"{name}: making an environment with {' '.join(requirements)}, once, in {folder}")
                _make(folder, name, requirements, install or install_with_pip, check or probe)
    except OSError as error:
        raise UsageError(
            f"--envs: {name} cannot be made in {plain(str(folder.parent))} ({error.strerror}); "
            "XDG_CACHE_HOME may name another folder"
        ) from None
    return python


def _make(folder: Path, name: str, requirements: Sequence[str], install: Install, check: Check) -> None:
    for left in folder.parent.glob(f".{folder.name}.*.partial"):
        shutil.rmtree(left, ignore_errors=True)  # from a killed run: this process holds the lock
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        install(partial, requirements)
        check(partial / "bin" / "python", name)
        if not (folder / "bin" / "python").exists():  # else it is of another run, without locks
            shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def install_with_pip(folder: Path, requirements: Sequence[str]) -> None:
    """Venv and pip by this program's Python, with the user's pip settings. Their output goes to stderr."""
    environment = base_environment()
    environment.pop("PYTHONPATH", None)
    pip = ("pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off", *requirements)
    for python, module in ((sys.executable, ("venv", str(folder))), (str(folder / "bin" / "python"), pip)):
        command = [python, "-m", *module]
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=2, check=False)
        if done.returncode:
            wanted = " ".join(requirements)
            raise UsageError(f"--envs: {module[0]} could not install {wanted}; its messages are above")


# -- asking one ---------------------------------------------------------------------------------------


def probe(python: Path, name: str, flag: str = "--envs") -> Facts:
    """The facts that the interpreter reports. Raises ``UsageError`` if it cannot be a worker."""
    shown = plain(str(python))
    instead = "put it back, or start a new run" if flag == "--resume" else "give the path of a Python"
    if not python.exists():
        raise UsageError(f"{flag}: {name}: there is no {shown}; {instead}")
    command = [str(python), "-m", "harness.probes.environment"]
    try:
        lines, code, log = printed_by(command, worker_environment(None, base_environment()), LIMIT_S)
    except NoAnswer as error:
        why = str(error).removeprefix("it ")
        raise UsageError(f"{flag}: {name}: {shown} {why}; check that it can import torch") from None
    except OSError as error:
        why = f"cannot be run ({error.strerror})"
        if error.errno == errno.ENOEXEC:
            why = f"is not a program for this machine ({platform.machine()})"
        raise UsageError(f"{flag}: {name}: {shown} {why}; {instead}") from None
    last = reason(log[-1].strip()) if log else "it printed no message"
    facts: dict[str, Any] = {}
    for line in lines:
        with contextlib.suppress(ValueError):
            content = json.loads(line)
            facts.update(content if isinstance(content, dict) else {})
    if "python" not in facts:
        raise UsageError(f"{flag}: {name}: {shown} is not a working Python ({last})")
    if why_not := _why_not(facts, code, last):
        raise UsageError(f"{flag}: {name}: {why_not}")
    return facts


def _why_not(facts: Facts, code: int, last: str) -> str | None:  # noqa: PLR0911 - one per fault
    """The fault and its cure as a sentence; None if there is no fault. ``last``: the last line of the log."""
    python, torch = facts["python"], facts.get("torch")
    if tuple(facts["version"]) < OLDEST_PYTHON:
        return f"its Python is {python}; a worker needs {'.'.join(map(str, OLDEST_PYTHON))} or later"
    if facts["machine"] != platform.machine():
        return f"its Python is for {facts['machine']}, this machine is {platform.machine()}"
    if "torch_error" not in facts and "torch_file" not in facts:
        return f"importing its torch ends the process ({exit_name(code)}: {last}); reinstall torch"
    if facts.get("torch_error"):
        why = reason(" ".join(str(facts["torch_error"]).split()))
        return f"its torch cannot be used ({why}); reinstall torch for Python {python}"
    if "torch_error" in facts:
        return "it has no torch; install torch there, or write torch==2.2.2 to have an environment made"
    major = str(torch).partition(".")[0]
    if not major.isdecimal() or int(major) < OLDEST_TORCH:
        return f"its torch is {torch}; a worker needs {OLDEST_TORCH}.0 or later"
    return None


def versions_text(facts: Facts) -> str:
    """``torch 2.2.2+cu121, Python 3.11.7, CUDA 12.1, triton 2.2.0``"""
    named = {"torch": "torch", "python": "Python", **PLATFORMS}
    named.update({name: name for name in ("triton", "transformers", "timm", "numpy")})
    return ", ".join(f"{label} {facts[name]}" for name, label in named.items() if facts.get(name))
