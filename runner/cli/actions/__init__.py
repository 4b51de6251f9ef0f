"""The actions of the program, one module each, listed here in the order of ``--help``.

The module of an action has

    CALLED_BY               the flags that ask for the action; without any of them, the program measures
    add_flags(add)          calls ``add`` with these flags and with the flags of this action only
    parse(given)            typed flags -> request. ``UsageError`` that names the wrong flag
    perform(asked, argv)    does the action; returns the exit code

Slow imports belong into ``perform``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from harness.settings import Flag, Given
from runner.cli.actions import (
    bisect,
    compare,
    doctor,
    history,
    list_compilers,
    list_models,
    measure,
    merge,
    print_commands,
    visualize,
)
from runner.errors import UsageError

Add = Callable[..., None]
"""``add(flag, ...)``"""


class Action(Protocol):
    """The interface of every module of this folder."""

    @property
    def CALLED_BY(self) -> tuple[Flag, ...]: ...  # noqa: N802 - a constant of a module

    def add_flags(self, add: Add, /) -> None: ...

    def parse(self, given: Given, /) -> Any: ...

    def perform(self, asked: Any, argv: Sequence[str], /) -> int: ...


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
    bisect,
)


def flags_of(action: Action) -> tuple[Flag, ...]:
    found: list[Flag] = []
    action.add_flags(lambda *flags: found.extend(flags))
    return tuple(found)


def with_flag(arguments: Sequence[str]) -> list[str]:
    """The words, with an action as the first word written as its flag: ``doctor`` is ``--doctor``."""
    actions = {one.long.removeprefix("--") for action in ACTIONS for one in action.CALLED_BY}
    known = {*actions, "help", "version"}
    return [f"--{word}" if place == 0 and word in known else word for place, word in enumerate(arguments)]


def chosen(given: Given) -> Action:
    """The requested action. ``UsageError`` for two actions, or for a flag of another action."""
    called = [(action, one) for action in ACTIONS for one in action.CALLED_BY if one.key in given]
    if len(called) > 1:
        raise UsageError(f"{called[0][1].long} and {called[1][1].long} exclude each other; choose one")
    action = called[0][0] if called else measure
    for other in ACTIONS:
        for one in flags_of(other):
            if other is not action and one.key in given:
                call = other.CALLED_BY[0]
                values = (
                    " ".join((call.long, *call.metavar)) if isinstance(call.metavar, tuple) else call.long
                )
                raise UsageError(f"{one.long} is for {values}; leave it out, or add {call.long}")
    return action
