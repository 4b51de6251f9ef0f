"""Study A in several environments, one after the other: ``--envs``. Each has its folder in the run's."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence

from runner.environments.prepare import say
from runner.environments.probe import base_environment
from runner.environments.resolve import Found, check_devices, resolved
from runner.exit_codes import BAD_INPUT, OK
from runner.worker_process import worker_environment
from studies.journal import new_folder
from studies.options import TrainingTimeOptions
from studies.report import report

OURS = ("--envs", "--output-dir", "--device")
"""Flags that are for this program, not for the one it starts in each environment."""


def run(options: TrainingTimeOptions, command: Sequence[str]) -> int:
    """Trains in every environment and reports, each alone and all side by side.

    ``UsageError`` for an environment that cannot be used, before anything is written.
    """
    found = resolved(options.environments, say)
    check_devices(found, [options.device], "--device")
    folder = new_folder(options.output_dir, "training-time")
    flags = [*others(command), f"--device={options.device}", "--records-only"]
    for one in found:
        code = _train(one, [*flags, f"--output-dir={folder / one.environment.name}"])
        if code == BAD_INPUT:
            return code  # it has said why
    return report(folder)


def others(command: Sequence[str]) -> Iterator[str]:
    """The words of a command line without the flags that are ``OURS``, and without the values of these."""
    words = iter(command)
    for word in words:
        flag, is_joined, _ = word.partition("=")
        if flag not in OURS:
            yield word
        elif not is_joined:
            next(words, None)


def _train(one: Found, flags: Sequence[str]) -> int:
    print(f"\n{one.environment.name}: torch {one.environment.torch}", flush=True)
    command = [one.environment.python, "-m", "studies", *flags]
    done = subprocess.run(command, env=worker_environment(None, base_environment()), check=False)
    if done.returncode not in (OK, BAD_INPUT):
        print(f"{one.environment.name} ended with code {done.returncode}; what it recorded is kept")
    return done.returncode
