"""``--envs``: an interpreter or requirements, with or without a name, and the jobs in several of them."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from harness.schema import Environment, Job, of_environment
from harness.settings import Group, flag
from runner.errors import UsageError, unknown
from runner.names import plain
from runner.plan.compilers import LEAVE_OUT, Usable, with_availability

FLAG = "--envs"
EAGER = "eager"
# ask(environment, device type, names): its interpreter reports about these compilers
Ask = Callable[[Environment, str, Sequence[str]], Mapping[str, Usable]]
NAMED = re.compile(r"^(?P<name>[^=<>!~/]+)=(?!=)(?P<value>.*)$", re.DOTALL)
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,31}$")
REQUIREMENT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?([=<>!~]=?[^\s;]*)?$")
TORCH = re.compile(r"^torch(\[[^\]]*\])?==(?P<version>[0-9][A-Za-z0-9.+!-]*)$")
DIFFERENT = (
    "leave one of them out, or give a script that sets a variable and becomes this Python (docs/COMPARE.md)"
)
EXAMPLE = "write old=/path/to/python, torch==2.2.2 or old=torch==2.2.2"


ENVS = flag(
    "--envs=NAME=PYTHON",
    group=Group.ENVIRONMENTS,
    many=True,
    help="a Python (old=/path/to/python) or requirements (torch==2.2.2) to measure in; if repeated, their "
    "rounds alternate: docs/COMPARE.md",
)
REFERENCE_ENV = flag(
    "--reference-env=NAME",
    group=Group.ENVIRONMENTS,
    help="the environment of --envs that the others are compared with (default: the first)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSpec:
    """One value of ``--envs``: an interpreter's path, or the requirements of an environment to make."""

    name: str
    text: str
    python: Path | None = None
    requirements: tuple[str, ...] = ()


def environments_asked(given: Sequence[str] | None, reference: str | None) -> tuple[EnvSpec, ...]:
    """The environments, the reference first. Raises ``UsageError`` for a value that is neither form."""
    if not given:
        if reference is not None:
            raise UsageError("--reference-env names one of --envs; add --envs, or leave it out")
        return ()
    environments = [_asked(text.strip()) for text in given]
    names = [spec.name for spec in environments]
    for first, second in itertools.combinations(environments, 2):
        if first.name == second.name:
            both = f"two environments are called {first.name}"
            raise UsageError(f"{FLAG}: {both}; write other=... before one of them")
        if (first.python, sorted(first.requirements)) == (second.python, sorted(second.requirements)):
            raise UsageError(f"{FLAG}: {first.name} and {second.name} are the same environment; {DIFFERENT}")
    if reference is not None and reference not in names:
        raise unknown("--reference-env", reference, "environment", names)
    return tuple(sorted(environments, key=lambda spec: spec.name != (reference or names[0])))


def _asked(text: str) -> EnvSpec:
    named = NAMED.match(text)
    name, value = (named["name"].strip(), named["value"].strip()) if named else ("", text)
    if named and not NAME.match(name):
        allowed = "use up to 32 letters, digits and -_.+"
        raise UsageError(f"{FLAG}: {name!r} cannot be the name of an environment; {allowed}")
    words = tuple(value.split())
    if not words:
        raise UsageError(f"{FLAG}: {text!r} names no environment; {EXAMPLE}")
    if (python := _python(value)) is not None:
        if not name:
            raise UsageError(f"{FLAG}: give {plain(value)} a name; write old={plain(value)}")
        return EnvSpec(name=name, text=value, python=python)
    wrong = [word for word in words if not REQUIREMENT.match(word)]
    pins = [pin for word in words if (pin := TORCH.match(word))]
    if wrong or len(pins) != 1:
        if not wrong and any(re.match(r"^torch\b(?!-)", word) for word in words):
            raise UsageError(f"{FLAG}: {value!r} does not say which version of torch; write torch==2.2.2")
        raise UsageError(f"{FLAG}: {value!r} is neither a Python nor a requirement of torch; {EXAMPLE}")
    name = name or f"torch-{pins[0]['version']}"[:32]
    if not NAME.match(name):
        raise UsageError(f"{FLAG}: give {value} a name; write old={value}")
    return EnvSpec(name=name, text=value, requirements=words)


def _python(value: str) -> Path | None:
    """The interpreter at this path, in this environment's folder, or with this command; else None."""
    if "/" in value or value.startswith(("~", ".")):
        path = Path(os.path.expanduser(value))  # noqa: PTH111 - Path.expanduser raises for an unknown user
        if (path / "bin" / "python").exists():
            path = path / "bin" / "python"
        return path.absolute()  # not resolved: a virtual environment's python is a link to the base Python
    command = shutil.which(value) if REQUIREMENT.match(value) and not TORCH.match(value) else None
    return Path(command) if command else None


# -- jobs in several environments -------------------------------------------------------------------


def candidates_in(compilers: Sequence[str], environments: Sequence[Environment]) -> tuple[str, ...]:
    """Eager, then the compilers, in each environment; the reference's eager if asked for: the A/A control."""
    others = [name for name in compilers if name != EAGER]
    return tuple(
        of_environment(name, environment.name)
        for place, environment in enumerate(environments)
        for name in ([EAGER, *others] if place or EAGER in compilers else others)
    )


def split_candidate(job: Job, candidate: str) -> tuple[str, Environment]:
    """``inductor@new``: the compiler, and the environment of the job. ``LookupError`` if there is none."""
    for environment in job.environments:
        ending = of_environment("", environment.name)
        if candidate.endswith(ending):
            return candidate.removesuffix(ending), environment
    raise LookupError(f"{candidate!r} does not belong to an environment of the job")


def named(asked: Sequence[EnvSpec], jobs: Sequence[Job]) -> tuple[Job, ...]:
    """The jobs in environments that are neither made nor checked, to print commands."""
    if not asked:
        return tuple(jobs)
    environments = tuple(Environment(name=spec.name, python="", asked=spec.text) for spec in asked)
    return tuple(
        replace(job, candidates=candidates_in(job.candidates, environments), environments=environments)
        for job in jobs
    )


def in_environments(
    jobs: Sequence[Job], environments: tuple[Environment, ...], ask: Ask, *, skip: bool
) -> tuple[Job, ...]:
    """The jobs in all environments. ``UsageError`` for a compiler that none has, unless ``skip``."""
    in_each = [with_availability(tuple(jobs), partial(ask, place), skip=True) for place in environments]
    placed = []
    for job, *alone in zip(jobs, *in_each, strict=True):
        refused: dict[str, str] = {}
        for name in job.candidates:
            reasons = {
                of_environment(name, environment.name): there.unavailable[name]
                for environment, there in zip(environments, alone, strict=True)
                if name in there.unavailable
            }
            if len(reasons) == len(environments) and not skip:
                why = next(iter(reasons.values()))
                raise UsageError(f"--compilers: in every environment {why}; {LEAVE_OUT}")
            refused.update(reasons)
        candidates = candidates_in(job.candidates, environments)
        placed.append(replace(job, candidates=candidates, environments=environments, unavailable=refused))
    return tuple(placed)
