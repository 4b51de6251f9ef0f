"""Makes and checks the environments of ``--envs``; all must work and differ."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.devices import named
from harness.schema import Environment, Job
from runner.errors import UsageError
from runner.plan.environments.make import Say, made
from runner.plan.environments.probe import Facts, probe, same, versions_text
from runner.plan.environments.spec import DIFFERENT, Asked

Probe = Callable[[Path, str, str], Facts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An environment and the facts that its interpreter reports."""

    environment: Environment
    facts: Facts


def resolved(asked: Sequence[Asked], say: Say, ask: Probe = probe) -> tuple[Found, ...]:
    """Makes the missing environments, and asks each for its facts.

    Raises ``UsageError`` if one cannot be used, or if two are the same.
    """
    found = [_resolved(one, say, ask) for one in asked]
    for first, second in itertools.combinations(found, 2):
        if same(first.facts, second.facts):
            one, other = first.environment, second.environment
            raise UsageError(
                f"--envs: {one.name} and {other.name} are the same environment "
                f"({versions_text(first.facts)}); {DIFFERENT}"
            )
    return tuple(found)


def _resolved(one: Asked, say: Say, ask: Probe) -> Found:
    python = one.python or made(one.name, one.requirements, say)
    facts = ask(python, one.name, "--envs")
    say(f"{one.name}: {versions_text(facts)}")
    environment = Environment(name=one.name, python=str(python), asked=one.text, torch=str(facts["torch"]))
    return Found(environment=environment, facts=facts)


def check_devices(found: Sequence[Found], devices: Sequence[str], flag: str = "--devices") -> None:
    """Raises ``UsageError``, which names ``flag``, if an environment cannot use a device."""
    for one in found:
        for device in devices:
            known = named(device)
            there = int(one.facts.get("devices", {}).get(known.type, 0))
            if known.accelerated and (known.index or 0) >= there:
                raise UsageError(
                    f"{flag}: {one.environment.name} (torch {one.environment.torch}) cannot use {device}: "
                    f"it finds {there} {known.label} devices; use {flag}=cpu"
                )


def check_still_there(jobs: Sequence[Job], ask: Probe = probe) -> None:
    """For ``--resume``: raises ``UsageError`` if an environment of the plan is missing or has changed."""
    known: Mapping[str, Environment] = {one.name: one for job in jobs for one in job.environments}
    for one in known.values():
        facts = ask(Path(one.python), one.name, "--resume")
        if str(facts["torch"]) != one.torch:
            raise UsageError(
                f"--resume: {one.name} has torch {facts['torch']} now, but had {one.torch} when the run "
                "began; start a new run"
            )
