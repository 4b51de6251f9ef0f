"""What the command line needs: jobs of a plan in the environments that a person named."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.schema import Environment, Job
from runner.compilers import Usable
from runner.environments.plan import candidates_in, in_environments
from runner.environments.probe import versions_text
from runner.environments.resolve import check_devices, resolved
from runner.environments.spec import Asked
from runner.labels import plain
from runner.probe import usable_compilers


def prepared(
    asked: Sequence[Asked], jobs: Sequence[Job], *, skip: bool
) -> tuple[tuple[Job, ...], dict[str, Any]]:
    """The jobs in all environments, and what ``run.json`` is to say of these; progress goes to stderr.

    ``UsageError`` for an environment that cannot be made or used.
    """
    found = resolved(asked, say)
    check_devices(found, list(dict.fromkeys(job.device for job in jobs)))
    environments = tuple(one.environment for one in found)
    facts = {one.environment.name: dict(one.facts) for one in found}
    return in_environments(jobs, environments, _ask, skip=skip), {"environments": facts}


def named(asked: Sequence[Asked], jobs: Sequence[Job]) -> tuple[Job, ...]:
    """The jobs in environments that nobody has looked for: to print commands."""
    environments = tuple(Environment(name=one.name, python="", asked=one.text) for one in asked)
    return tuple(
        dataclasses.replace(
            job, candidates=candidates_in(job.candidates, environments), environments=environments
        )
        for job in jobs
    )


def usable_in(
    asked: Sequence[Asked], device_types: Sequence[str]
) -> Iterator[tuple[str, str, Mapping[str, Usable]]]:
    """For each environment and kind of device a heading, the kind, and what it says of every compiler.

    ``UsageError`` for an environment that cannot be made or used.
    """
    found = resolved(asked, lambda _: None)
    check_devices(found, device_types)
    for one in found:
        for kind in device_types:
            heading = f"{one.environment.name}: {versions_text(one.facts)}"
            yield heading, kind, _ask(one.environment, kind, ())


def say(line: str) -> None:
    """Progress, to stderr."""
    print(plain(line), file=sys.stderr, flush=True)


def _ask(environment: Environment, device_type: str, names: Sequence[str]) -> Mapping[str, Usable]:
    return usable_compilers(device_type, names, environment.python)
