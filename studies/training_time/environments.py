"""Study A in several environments, one after another (``--envs``). Each has a folder in the run folder."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence

from runner.cli.exit_codes import BAD_INPUT, OK
from runner.plan.environments.prepare import Found, check_devices, resolved, say
from runner.plan.environments.probe import base_environment
from runner.plan.interpreter import worker_environment
from runner.store.run_folder import new_folder
from studies.report import report
from studies.training_time.options import TrainingTimeOptions

OURS = ("--envs", "--output-dir", "--device")
"""Flags that are not passed to the program in each environment."""


def run(options: TrainingTimeOptions, command: Sequence[str]) -> int:
    """Trains in every environment; writes a report for each environment and one for all of them.

    ``UsageError`` for an environment that cannot be used, before anything is written.
    """
    found = resolved(options.environments, say)
    check_devices(found, [options.device], "--device")
    folder = new_folder(options.output_dir, "study-training-time")
    flags = [*others(command), f"--device={options.device}", "--records-only"]
    for one in found:
        code = _train(one, [*flags, f"--output-dir={folder / one.environment.name}"])
        if code == BAD_INPUT:
            return code  # it has printed the reason
    return report(folder)


def others(command: Sequence[str]) -> Iterator[str]:
    """The words of a command line without the flags in ``OURS`` and their values."""
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
        print(f"{one.environment.name} ended with code {done.returncode}; its records are kept")
    return done.returncode
