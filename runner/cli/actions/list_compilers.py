"""``--list-compilers``: the compilers of each device type, or the reason why a compiler is unavailable."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial

from harness.devices import of, type_of
from harness.settings import Given, Group, flag
from runner.cli.actions.measure import planned
from runner.cli.exit_codes import OK
from runner.names import plain
from runner.plan.compilers import Usable
from runner.plan.config import RunConfig
from runner.plan.probe import missing_devices, usable_compilers

FLAGS = (
    flag("--list-compilers", group=Group.ACTIONS, help="list the compilers, and why one cannot be used here"),
)


def parse(given: Given) -> RunConfig:
    return planned(given, mode_required=False).config


def perform(config: RunConfig, argv: Sequence[str]) -> int:
    kinds = tuple(dict.fromkeys(type_of(device) for device in config.devices))
    ask = partial(usable_compilers, own=config.own_compilers, suites=config.suites)
    if not config.environments:
        wanted = [kind for kind in kinds if of(kind).accelerated]
        missing = missing_devices(wanted) if wanted else {}
        for kind in kinds:
            if kind in missing:
                why = f"{kind} is not there ({missing[kind]}); a yes says that the packages are installed"
                print(plain(f"note: {why}"), file=sys.stderr)
            _print_compilers(kind, ask(kind))
        return OK
    from runner.plan.environments import prepare

    checked = prepare.resolved(config.environments, lambda _: None)
    prepare.check_devices(checked, kinds)
    for environment, facts in checked.items():
        for kind in kinds:
            print(plain(f"{environment.name}: {prepare.versions_text(facts)}"))
            _print_compilers(kind, ask(kind, (), environment.python))
    return OK


def _print_compilers(device_type: str, compilers: Mapping[str, Usable]) -> None:
    for name, usable in compilers.items():
        state = "no " if usable.why_not else "yes"
        modes = f" ({' and '.join(usable.modes)} only)" if usable.modes else ""
        print(plain(f"{device_type:5} {name:36} {state}  {usable.why_not or usable.what}{modes}"))
