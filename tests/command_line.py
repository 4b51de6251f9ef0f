"""What the program makes of a command line, without doing it; and other programs, which are run."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
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


def ran(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """With its exit code and what it printed."""
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


def git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main")
    done = ran("git", *settings, *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
