"""What the program makes of a command line, without doing it."""

from collections.abc import Sequence
from typing import Any

from runner.cli.actions import Action, chosen
from runner.cli.parser import given
from runner.cli.parser import parsed as read_by
from runner.plan.checks import run_config
from runner.plan.config import RunConfig


def parsed(words: Sequence[str]) -> tuple[Action, Any]:
    """The action, and what it is asked."""
    typed = given(words)
    action = chosen(typed)
    return action, read_by(action, typed)


def config_of_words(words: Sequence[str]) -> RunConfig:
    return run_config(given(words))
