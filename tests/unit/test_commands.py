"""The command of a job makes the same job: for every setting that there is, and for every committed run."""

import dataclasses
import itertools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.codec import from_json
from harness.protocol import AUTO
from harness.schema import Job, Protocol
from runner.cli.commands import job_command
from runner.cli.parser import build_parser
from runner.plan.config import QUICK, USUAL
from runner.store import invocation
from runner.store.packed import opened
from tests.command_line import config_of_words, planned
from tests.factories import make_job

ROOT = Path(__file__).parents[2]


def test_quick_and_processes_are_in_the_command() -> None:
    quick = make_job(suite="ops", protocol=dataclasses.replace(QUICK, processes=5))
    assert job_command(quick).startswith("python suites/ops.py --quick --training ")
    assert job_command(quick).endswith("--seed=1337 --processes=5")
    single = make_job(suite="ops", protocol=Protocol(max_rounds=20))
    assert job_command(single).endswith("--seed=1337 --protocol=max_rounds=20 --processes=1")
    usual = make_job(suite="ops", protocol=dataclasses.replace(USUAL, max_rounds=20))
    assert job_command(usual).endswith("--seed=1337 --protocol=max_rounds=20")


@pytest.mark.parametrize(
    ("words", "processes"),
    [("", AUTO), ("--quick", 1), ("--quick --processes=auto", AUTO), ("--processes=3", 3), ("--why", 1)],
)
def test_a_run_has_the_processes_that_its_verdicts_need(words: str, processes: int) -> None:
    config = config_of_words(f"--suites=ops --training {words}".split())
    assert config.protocol.processes == processes


def test_where_it_is_installed_the_command_is_torchduet(monkeypatch: pytest.MonkeyPatch) -> None:
    job, own = make_job(suite="ops"), make_job(suite="package.module:make")
    monkeypatch.chdir(ROOT)
    assert job_command(job).startswith("python suites/ops.py --training ")
    assert job_command(own).startswith("python runner.py --model=package.module:make --training ")
    monkeypatch.setattr(invocation, "in_clone", lambda *_: False)
    monkeypatch.setattr(invocation, "_installed", lambda: True)
    assert job_command(job).startswith("torchduet --suites=ops --training ")
    assert job_command(own).startswith("torchduet --model=package.module:make --training ")
    monkeypatch.setattr("runner.cli.parser.in_clone", lambda: False)
    examples = str(build_parser().epilog)
    assert "torchduet --suites=tiny_gpt --training --bfloat16" in examples
    assert "suite's script" not in examples


# -- the runs that are committed ------------------------------------------------
LOST_BEFORE = (
    "processes",
    "min_rounds",
    "max_rounds",
    "max_measure_s",
    "noise_threshold",
    "alpha",
    "min_sample_s",
)
"""Settings that commands in older records leave out: those records are never rewritten."""


def committed() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted((ROOT / "results").rglob("records.jsonl*")):
        with opened(path) as file:
            records = [*map(json.loads, file)]
        for record in records:
            if record.get("job", {}).get("case", {}).get("folder"):
                continue  # its command needs the checkout of suite torchbench
            if record.get("job", {}).get("extras", {}).get("allocator") == "both":
                continue  # that flag is gone; the records still open
            if "reproduce" in record:  # records of studies have none
                yield path, record


def plain(job: Job) -> Job:
    """Without what a path or a question of the machine decided, and by the present rule of parity."""
    environments = tuple(dataclasses.replace(env, python="", torch="") for env in job.environments)
    parity = {"scaled": "noise"}.get(job.protocol.parity, job.protocol.parity)
    protocol = dataclasses.replace(job.protocol, parity=parity)
    return dataclasses.replace(job, environments=environments, unavailable={}, protocol=protocol)


@pytest.mark.parametrize(
    "share", [pytest.param(4, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)]
)
def test_committed_commands_parse_to_their_jobs(share: int) -> None:
    """One of ``share`` records."""
    seen = 0
    for path, record in itertools.islice(committed(), 0, None, share):
        job = plain(from_json(Job, record["job"]))
        candidate = record["candidate"]
        for command in dict.fromkeys((job_command(job, (candidate,)), record["reproduce"])):
            old = command == record["reproduce"]
            (again,) = planned(command, job.case)
            assert candidate in again.candidates, (path, command)
            protocol = again.protocol
            if old:
                lost = {name: getattr(job.protocol, name) for name in LOST_BEFORE}
                protocol = dataclasses.replace(protocol, **lost)
            if "--scale=" not in command:  # commands of version 1 had none
                again = dataclasses.replace(again, case=dataclasses.replace(again.case, scale=job.case.scale))
            if "--cold-start-latency" in command:  # it was a measurement of its own, and is --compile-runs=1
                again = dataclasses.replace(again, extras=job.extras)
            if job.case.skip and "--no-skip" in command:  # how to run what was skipped
                again = dataclasses.replace(again, case=job.case)
            environments = tuple(env for env in job.environments if env in again.environments)
            wanted = dataclasses.replace(job, candidates=again.candidates, environments=environments)
            assert dataclasses.replace(again, protocol=protocol) == wanted, (path, command)
            seen += 1
    assert seen > 700 / share


@pytest.mark.parametrize("name", ["line\nbreak", "\t=1+1", "\u202eright to left", "a,b\x00"])
def test_the_command_of_a_name_that_cannot_be_printed_selects_this_model(name: str) -> None:
    command = job_command(make_job(name, suite="tiny_gpt", scale="tiny"))
    assert command.isprintable()
    (pattern,) = config_of_words(shlex.split(command)[2:]).selection.filters
    assert re.search(pattern, name)
    assert not re.search(pattern, f"x{name}")
