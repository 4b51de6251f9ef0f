"""The actions of the program, one module each, listed here in the order of ``--help``.

The module of an action has

    FLAGS                   first the flag that chooses the action, then the flags of this action only;
                            without any of the first ones, the program measures
    parse(given)            typed flags -> request. ``UsageError`` that names the wrong flag
    perform(request, argv)  does the action; returns the exit code

Slow imports belong into ``perform``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from harness.settings import Flag, Given
from runner.cli.actions import (
    compare,
    doctor,
    history,
    list_compilers,
    list_models,
    measure,
    merge,
    print_commands,
    tune,
    visualize,
    why,
)
from runner.errors import UsageError


class Action(Protocol):
    """The interface of every module of this folder."""

    @property
    def FLAGS(self) -> tuple[Flag, ...]: ...  # noqa: N802 - a constant of a module

    def parse(self, given: Given, /) -> Any: ...

    def perform(self, request: Any, argv: Sequence[str], /) -> int: ...


ACTIONS: tuple[Action, ...] = (
    list_models,
    list_compilers,
    print_commands,
    visualize,
    doctor,
    measure,
    merge,
    compare,
    history,
    why,
    tune,
)


def with_flag(arguments: Sequence[str]) -> list[str]:
    """The words, with an action as the first word written as its flag: ``doctor`` is ``--doctor``."""
    known = {*(action.FLAGS[0].long.removeprefix("--") for action in ACTIONS), "help", "version"}
    return [f"--{word}" if place == 0 and word in known else word for place, word in enumerate(arguments)]


def chosen(given: Given) -> Action:
    """The requested action. ``UsageError`` for two actions, or for a flag of another action."""
    actions = [action for action in ACTIONS if action.FLAGS[0].key in given] or [measure]
    if len(actions) > 1:
        first, second = (action.FLAGS[0].long for action in actions[:2])
        raise UsageError(f"{first} and {second} exclude each other; choose one")
    for other in ACTIONS:
        call = other.FLAGS[0]
        for flag in other.FLAGS:
            if other is not actions[0] and flag.key in given and flag not in getattr(actions[0], "ALSO", ()):
                values = call.metavar if isinstance(call.metavar, tuple) else ()
                add = f", or add {call.long}" if actions[0] is measure else ""
                also = " and for runs that measure" if flag in measure.ALSO else ""
                where = "runs that measure" if other is measure else " ".join((call.long, *values)) + also
                raise UsageError(f"{flag.long} is for {where}; leave it out{add}")
    return actions[0]
