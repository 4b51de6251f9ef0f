"""``make versions``: does torchduet work with every Python and torch that it says it works with?

Makes each environment once, below ~/.cache/torchduet/versions (XDG_CACHE_HOME moves it), and runs a compact
acceptance in it: what is missing somewhere is a skip with its reason, anything else is a failure.
"""

import argparse
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tabulate import tabulate

from runner.errors import UsageError
from runner.plan.environments.prepare import Facts, probe
from runner.plan.interpreter import cache_root
from tests.versions.acceptance import Ground, Wrong, steps
from tests.versions.environments import PINNED, TABLE, Environment
from tests.versions.install import CannotBeMade, NoInterpreter, build_wheel, environment_python

PACKAGES = ("torch", "torchvision", "transformers", "timm", "numpy")
COLUMNS = ("environment", "Python", *PACKAGES, "result", "min", "CPU min")


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How one environment came out."""

    environment: Environment
    result: str
    seconds: float = 0.0
    cpu_s: float = 0.0  # of all processes: what the acceptance costs where nothing else runs
    versions: Facts = field(default_factory=dict)
    skips: list[str] = field(default_factory=list)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.versions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [row.name for row in TABLE]
    parser.add_argument("--only", metavar="NAME,...", help=f"some of {', '.join(names)}")
    options = parser.parse_args(words)
    asked = (options.only or "").replace(",", " ").split() or names
    unknown = [name for name in asked if name not in names]
    if unknown:
        parser.error(f"--only: there is no environment called {unknown[0]}; choose from {', '.join(names)}")
    with tempfile.TemporaryDirectory(prefix="torchduet-wheel-") as place:
        try:
            wheel = build_wheel(Path(place))
            outcomes = [accepted(row, wheel) for name in asked for row in TABLE if row.name == name]
        except CannotBeMade as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    print_table(outcomes)
    return 1 if any(outcome.result.startswith("FAILED") for outcome in outcomes) else 0


def accepted(environment: Environment, wheel: Path) -> Outcome:
    """Makes the environment and runs its acceptance; its folder is kept where a step failed."""

    def say(text: str) -> None:
        print(f"{environment.name}: {text}", flush=True)

    try:
        pinned = environment_python(
            next(row for row in TABLE if row.name == PINNED), cache_root() / "versions", wheel, say
        )
        python = environment_python(environment, cache_root() / "versions", wheel, say)
        versions = probe(python, environment.name)
    except NoInterpreter as error:
        say(f"skipped: {error}")
        return Outcome(environment=environment, result="skip", skips=[str(error)])
    except (CannotBeMade, UsageError) as error:
        say(f"FAILED: {error}")
        return Outcome(environment=environment, result="FAILED: installing")
    outcome = Outcome(environment=environment, result="pass", versions=versions)
    folder = Path(tempfile.mkdtemp(prefix=f"torchduet-{environment.name}-"))
    ground = Ground(environment=environment, python=python, pinned=pinned, folder=folder)
    chosen = steps(environment)
    failed = []
    before = _cpu_s()
    for number, step in enumerate(chosen, start=1):
        began = time.monotonic()
        name = step.__name__.strip("_")
        try:
            outcome.skips += step(ground)
            how = "pass"
        except Wrong as error:
            failed.append(name)
            how = f"FAILED: {error}"
        took = time.monotonic() - began
        outcome.seconds += took
        say(f"[{number}/{len(chosen)}] {name}: {how} ({took:.0f} s)")
    outcome.cpu_s = _cpu_s() - before
    if failed:
        outcome.result = f"FAILED: {', '.join(failed)}"
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _cpu_s() -> float:
    """Of every process that this one has started and seen end."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def print_table(outcomes: Sequence[Outcome]) -> None:
    """The table of docs/VERSIONS.md, and a line for each skip."""
    print(f"\n{tabulate(map(_row, outcomes), headers=COLUMNS, tablefmt='github', disable_numparse=True)}\n")
    for outcome in outcomes:
        for skip in outcome.skips:
            print(f"skip: {outcome.environment.name}: {skip}")


def _row(outcome: Outcome) -> list[str]:
    versions = [str(outcome.versions.get(package) or "-") for package in PACKAGES]
    python = str(outcome.versions.get("python") or outcome.environment.python)
    minutes = [f"{seconds / 60:.1f}" for seconds in (outcome.seconds, outcome.cpu_s)]
    return [outcome.environment.name, python, *versions, outcome.result, *minutes]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
