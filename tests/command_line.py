"""What the program makes of a command line, without doing it; and other programs, which are run."""

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.schema import Case, Job, Setting
from harness.settings import is_own_model
from runner.cli.actions import Action, chosen
from runner.cli.parser import given
from runner.cli.parser import parsed as read_by
from runner.errors import UsageError
from runner.plan.checks import run_config
from runner.plan.config import RunConfig
from runner.plan.environments.spec import named
from runner.plan.jobs import Catalog, plan


def parsed(words: Sequence[str]) -> tuple[Action, Any]:
    """The action, and what it is asked."""
    typed = given(words)
    action = chosen(typed)
    return action, read_by(action, typed)


def config_of_words(words: Sequence[str]) -> RunConfig:
    return run_config(given(words))


def planned(command: str, case: Case) -> tuple[Job, ...]:
    """The jobs of a command, where the suite offers the case without what the command asks for beside it."""
    words = shlex.split(command)
    _, script, *typed = words if words[0] == "python" else ("", *words)
    config = config_of_words(typed)
    if script.startswith("suites/"):  # whose own script is called: it is not among the flags
        assert script == f"suites/{case.suite}.py"
        config = replace(config, suites=(case.suite,))
    skip = case.skip or ("it is skipped" if case.no_skip else "")
    plain = replace(case, batch_size=None, prompt_tokens=None, new_tokens=None, skip=skip, point=())
    plain = replace(plain, loss="own", config=(), pretrained=False, no_skip=False)

    def offered(_: str, setting: Setting) -> tuple[Case, ...]:
        scale = "full" if is_own_model(case.suite) else setting.scale
        return (replace(plain, mode=setting.mode, scale=scale),)

    jobs = plan(config, Catalog(cases=offered, find=lambda *_: {}, cases_of=lambda *_: (case,)))
    return named(config.environments, jobs)


@contextmanager
def refused(says: str, begins: str = "") -> Iterator[pytest.ExceptionInfo[UsageError]]:
    """What is done inside ends in one sentence that says so."""
    with pytest.raises(UsageError) as raised:
        yield raised
    sentence = str(raised.value)
    assert says in sentence
    assert sentence.startswith(begins)
    assert "\n" not in sentence


def ran(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """With its exit code and what it printed."""
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main")
    done = ran("git", *settings, *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
