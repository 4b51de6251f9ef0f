"""From a configuration to the list of jobs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from harness.schema import Case, Job, Mode
from harness.suite_files import load_suite
from runner.config import RunConfig, Selection
from runner.errors import UsageError, unknown

ON_REQUEST = "on_request"  # a case too large to run unless it is named
QUICK = "quick"

Cases = Callable[[str, Mode, str], tuple[Case, ...]]
"""``cases(suite, mode, device type)``"""


def suite_cases(suite: str, mode: Mode, device_type: str) -> tuple[Case, ...]:
    """All cases of a suite. ``UsageError`` when the suite's file cannot be used."""
    try:
        module = load_suite(suite)
        return tuple(module.cases(mode, device_type))
    except LookupError as error:
        raise UsageError(f"--suites: {error}") from None
    except Exception as error:
        raise UsageError(
            f"--suites: {suite} cannot be listed: {type(error).__name__}: {error}; "
            "a suite needs cases(mode, device_type) and build(case)"
        ) from None


def plan(config: RunConfig, cases: Cases = suite_cases) -> tuple[Job, ...]:
    """One job for each selected case, device and precision, in a stable order.

    Raises ``UsageError`` when the selection matches nothing or a name is unknown.
    """
    jobs = []
    known: dict[str, None] = {}
    for suite in config.suites:
        for device in config.devices:
            offered = cases(suite, config.mode, device.split(":")[0])
            known.update(dict.fromkeys(case.name for case in offered))
            for case in select(offered, config.selection):
                sized = dataclasses.replace(case, batch_size=config.batch_size or case.batch_size)
                jobs += [
                    Job(
                        case=sized,
                        device=device,
                        dtype=dtype,
                        candidates=config.compilers,
                        protocol=config.protocol,
                    )
                    for dtype in config.dtypes
                ]
    for name in config.selection.only:
        if name not in known:
            raise unknown("--only", name, "model", known)
    if not jobs:
        raise UsageError(_nothing_selected(config, tuple(known)))
    return tuple(jobs)


def select(offered: tuple[Case, ...], selection: Selection) -> tuple[Case, ...]:
    """The cases that the selection names, in the suite's order."""

    def wanted(case: Case) -> bool:
        if any(re.search(pattern, case.name) for pattern in selection.excludes):
            return False
        if selection.only or selection.filters:
            found = any(re.search(pattern, case.name) for pattern in selection.filters)
            return case.name in selection.only or found
        return ON_REQUEST not in case.tags

    chosen = tuple(case for case in offered if wanted(case))
    if selection.quick and not selection.only:
        return tuple(case for case in chosen if QUICK in case.tags) or chosen[:2]
    return chosen


def _nothing_selected(config: RunConfig, known: tuple[str, ...]) -> str:
    selection = config.selection
    if selection.filters:
        pattern = selection.filters[0]
        word = re.sub(r"\W+", "", pattern)
        error = unknown("-k/--filter", word or pattern, "model matching", known)
        return str(error).replace("model matching called", "model matching")
    if selection.excludes:
        return "-x/--exclude: every model is left out; loosen the pattern"
    return f"--suites: {', '.join(config.suites)} has no model to run"
