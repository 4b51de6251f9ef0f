"""Jobs for several environments: each compiler in each environment is a candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from harness.schema import Environment, Job, of_environment
from runner.errors import UsageError
from runner.plan.compilers import LEAVE_OUT, Usable, with_availability
from runner.plan.environments.spec import EnvSpec

EAGER = "eager"
# ask(environment, device type, names): its interpreter reports about these compilers
Ask = Callable[[Environment, str, Sequence[str]], Mapping[str, Usable]]


def candidates_in(compilers: Sequence[str], environments: Sequence[Environment]) -> tuple[str, ...]:
    """The candidates, with eager first in each environment.

    The eager of every other environment is a candidate, whose baseline is the reference's eager. If eager
    is among ``compilers``, the reference environment runs eager in a second process: the A/A control.
    """
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
