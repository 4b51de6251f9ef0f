"""The jobs of a plan in the environments of ``--envs``, for the command line."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.schema import Environment, Job
from runner.labels import plain
from runner.plan.compilers import Usable
from runner.plan.environments.plan import candidates_in, in_environments
from runner.plan.environments.probe import versions_text
from runner.plan.environments.resolve import check_devices, resolved
from runner.plan.environments.spec import Asked
from runner.plan.probe import asking_for, usable_compilers


def prepared(
    asked: Sequence[Asked], jobs: Sequence[Job], *, skip: bool
) -> tuple[tuple[Job, ...], dict[str, Any]]:
    """The jobs in all environments, and the facts about these for ``run.json``. Prints progress to stderr.

    Raises ``UsageError`` if an environment cannot be made or used.
    """
    found = resolved(asked, say)
    check_devices(found, list(dict.fromkeys(job.device for job in jobs)))
    environments = tuple(one.environment for one in found)
    facts = {one.environment.name: dict(one.facts) for one in found}

    def ask(environment: Environment, device_type: str, names: Sequence[str]) -> Mapping[str, Usable]:
        return asking_for(jobs, environment.python)(device_type, names)

    return in_environments(jobs, environments, ask, skip=skip), {"environments": facts}


def named(asked: Sequence[Asked], jobs: Sequence[Job]) -> tuple[Job, ...]:
    """The jobs in environments that are neither made nor checked, to print commands."""
    environments = tuple(Environment(name=one.name, python="", asked=one.text) for one in asked)
    return tuple(
        dataclasses.replace(
            job, candidates=candidates_in(job.candidates, environments), environments=environments
        )
        for job in jobs
    )


def usable_in(
    asked: Sequence[Asked],
    device_types: Sequence[str],
    own: Mapping[str, str] | None = None,
    suites: Sequence[str] = (),
) -> Iterator[tuple[str, str, Mapping[str, Usable]]]:
    """For each environment and device type: a heading, the device type, and all compilers.

    Raises ``UsageError`` if an environment cannot be made or used.
    """
    found = resolved(asked, lambda _: None)
    check_devices(found, device_types)
    for one in found:
        for kind in device_types:
            heading = f"{one.environment.name}: {versions_text(one.facts)}"
            yield (
                heading,
                kind,
                usable_compilers(kind, (), one.environment.python, own=own, suites=suites),
            )


def say(line: str) -> None:
    print(plain(line), file=sys.stderr, flush=True)
