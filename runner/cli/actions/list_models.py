"""``--list``: the cases that the flags select, and the cases that run only when they are named."""

from __future__ import annotations

from collections.abc import Sequence

from harness.settings import Given, Group, flag
from runner.cli.actions.measure import planned
from runner.cli.exit_codes import OK
from runner.names import batch_text, plain, suite_labels
from runner.plan.config import RunConfig
from runner.plan.environments.spec import named
from runner.plan.jobs import ON_REQUEST, catalog_for, changed_case, plan, setting_for
from runner.plan.partition import our_part

FLAGS = (flag("--list", group=Group.ACTIONS, help="list the models that the other flags select"),)


def parse(given: Given) -> RunConfig:
    return planned(given, mode_required=False).config


def perform(config: RunConfig, argv: Sequence[str]) -> int:
    catalog = catalog_for(config)
    # the part of a plan depends on the names of environments
    jobs = our_part(config.partition, named(config.environments, plan(config, catalog)))
    for suite in config.suites:
        selected = {job.case.name: job.case for job in jobs if job.case.suite == suite}
        settings = (setting_for(config, config.devices[0], mode) for mode in config.modes)
        offered = [case for setting in settings for case in catalog.cases(suite, setting)]
        asked = config.selection.only or config.selection.filters or config.partition.total
        large = [] if asked else [case for case in offered if ON_REQUEST in case.tags]
        on_request = {case.name: changed_case(case, config.changes) for case in large}
        for case in (*selected.values(), *on_request.values()):
            notes = "" if case.name in selected else "  (only when named)"
            notes += f"  (skipped: {case.skip})" if case.skip else ""
            label = suite_labels([suite])[suite]
            print(plain(f"{label:12} {case.name:40} {case.scale:5}  batch {batch_text(case)}{notes}"))
    return OK
