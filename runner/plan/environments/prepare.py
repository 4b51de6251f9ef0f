"""Makes the environments of ``--envs``, checks that all work and differ, and gives them a plan's jobs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.devices import named as device_named
from harness.schema import Environment, Job
from runner.errors import UsageError
from runner.labels import plain
from runner.plan.compilers import Usable
from runner.plan.environments.make import Say, interpreter_with
from runner.plan.environments.plan import in_environments
from runner.plan.environments.probe import Facts, probe, same, versions_text
from runner.plan.environments.spec import DIFFERENT, EnvSpec
from runner.plan.possible import WHERE_IT_BEGAN
from runner.plan.probe import asking_for


def prepared(
    asked: Sequence[EnvSpec], jobs: Sequence[Job], *, skip: bool
) -> tuple[tuple[Job, ...], dict[str, Any]]:
    """The jobs in all environments, and the facts about these for ``run.json``. Prints progress to stderr.

    Raises ``UsageError`` if an environment cannot be made or used.
    """
    checked = resolved(asked, say)
    check_devices(checked, list(dict.fromkeys(job.device for job in jobs)))
    facts = {environment.name: dict(facts) for environment, facts in checked.items()}

    def ask(environment: Environment, device_type: str, names: Sequence[str]) -> Mapping[str, Usable]:
        return asking_for(jobs, environment.python)(device_type, names)

    return in_environments(jobs, tuple(checked), ask, skip=skip), {"environments": facts}


def say(line: str) -> None:
    print(plain(line), file=sys.stderr, flush=True)


# -- the environments themselves ----------------------------------------------------------------------


class SameEnvironments(UsageError):
    """Two of ``--envs`` use the same installation of torch, with equal versions and settings."""


Checked = Mapping[Environment, Facts]
"""Environments, the reference first, and the facts that their interpreters report."""


def resolved(asked: Sequence[EnvSpec], say: Say) -> Checked:
    """Makes the missing environments, and asks each for its facts.

    Raises ``UsageError`` if one cannot be used, or if two are the same.
    """
    checked = {}
    for spec in asked:
        python = spec.python or interpreter_with(spec.name, spec.requirements, say)
        facts = probe(python, spec.name, "--envs")
        say(f"{spec.name}: {versions_text(facts)}")
        torch = str(facts["torch"])
        checked[Environment(name=spec.name, python=str(python), asked=spec.text, torch=torch)] = facts
    for (first, facts), (second, others) in itertools.combinations(checked.items(), 2):
        if same(facts, others):
            both = f"{first.name} and {second.name} are the same environment ({versions_text(facts)})"
            raise SameEnvironments(f"--envs: {both}; {DIFFERENT}")
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
