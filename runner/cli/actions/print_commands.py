"""``--print-run-commands``: prints a command for each job of the plan."""

from __future__ import annotations

from collections.abc import Sequence

from harness.settings import Given, Group, flag
from runner.cli.actions.measure import planned
from runner.cli.commands import job_command
from runner.cli.exit_codes import OK
from runner.plan.config import RunConfig
from runner.plan.environments.spec import named
from runner.plan.jobs import plan
from runner.plan.partition import our_part

HELP = "print one suite-script command for each model, device and precision"
FLAGS = (flag("--print-run-commands", group=Group.ACTIONS, help=HELP),)


def parse(given: Given) -> RunConfig:
    return planned(given).config


def perform(config: RunConfig, argv: Sequence[str]) -> int:
    for job in our_part(config.partition, named(config.environments, plan(config))):
        print(job_command(job))
    return OK
