"""From what the person wrote to environments that are known to work, and are not the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.schema import Environment, Job
from runner.environments.make import Say, made
from runner.environments.probe import Facts, probe, same, versions_text
from runner.environments.spec import Asked
from runner.errors import UsageError

Probe = Callable[[Path, str, str], Facts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An environment and what it said of itself."""

    environment: Environment
    facts: Facts


def resolved(asked: Sequence[Asked], say: Say, ask: Probe = probe) -> tuple[Found, ...]:
    """Makes what is to be made and asks each what it is.

    ``UsageError`` for the first that cannot be used, and for two that are the same.
    """
    found = [_resolved(one, say, ask) for one in asked]
    for first, second in itertools.combinations(found, 2):
        if same(first.facts, second.facts):
            one, other = first.environment, second.environment
            raise UsageError(
                f"--envs: {one.name} and {other.name} are the same environment "
                f"({versions_text(first.facts)}); leave one of them out"
            )
    return tuple(found)


def _resolved(one: Asked, say: Say, ask: Probe) -> Found:
    python = one.python or made(one.name, one.requirements, say)
    facts = ask(python, one.name, "--envs")
    say(f"{one.name}: {versions_text(facts)}")
    environment = Environment(name=one.name, python=str(python), asked=one.text, torch=str(facts["torch"]))
    return Found(environment=environment, facts=facts)


def check_devices(found: Sequence[Found], devices: Sequence[str], flag: str = "--devices") -> None:
    """``UsageError``, which names the ``flag``, for a device that one of the environments cannot use."""
    for one in found:
        for device in devices:
            kind, _, index = device.partition(":")
            there = int(one.facts.get("cuda_devices") or 0)
            if kind != "cpu" and int(index or 0) >= there:
                raise UsageError(
                    f"{flag}: {one.environment.name} (torch {one.environment.torch}) cannot use {device}: "
                    f"it finds {there} CUDA devices; use {flag}=cpu"
                )


def check_still_there(jobs: Sequence[Job], ask: Probe = probe) -> None:
    """For ``--resume``: ``UsageError`` where an environment of the plan is gone or is another by now."""
    known: Mapping[str, Environment] = {one.name: one for job in jobs for one in job.environments}
    for one in known.values():
        facts = ask(Path(one.python), one.name, "--resume")
        if str(facts["torch"]) != one.torch:
            raise UsageError(
                f"--resume: {one.name} has torch {facts['torch']} now, and had {one.torch} when the run "
                "began; start a new run"
            )
