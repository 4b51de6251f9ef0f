"""The search over versions, with made-up outcomes; the result_changes, from made-up records."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.schema import Job, Protocol, Record, Status
from runner.cli.main import main
from runner.errors import UsageError
from runner.plan.environments.prepare import SameEnvironments
from runner.plan.environments.spec import EnvSpec
from runner.runs.bisect import (
    BAD,
    CANNOT_JUDGE,
    FASTER,
    GOOD,
    OPEN,
    SAME,
    SLOWER,
    STATUS,
    ResultChange,
    bisect,
    builds_asked,
    followed,
    judge,
    pip_versions,
    result_changes,
    search,
)
from tests.command_line import executable, refused
from tests.factories import make_environments, make_job, make_record, with_samples

VERSIONS = tuple(f"2.{minor}" for minor in range(16))
ONE = "m training float32 cpu, inductor"

Truth = Callable[[int], str]


class World:
    """The change of each result in each version, compared with the oldest."""

    def __init__(self, truths: Mapping[str, Truth], missing: Collection[str] = ()) -> None:
        self.truths, self.missing = truths, missing
        self.asked: list[tuple[str, set[str]]] = []

    def __call__(self, version: str, names: Collection[str]) -> Mapping[str, ResultChange]:
        self.asked.append((version, set(names)))
        if version in self.missing:
            raise UsageError(f"pip finds no torch=={version}")
        place = VERSIONS.index(version)
        return {name: ResultChange(change=self.truths[name](place), text="") for name in names}

    def search(self) -> dict[str, tuple[str, Sequence[str]]]:
        return search(VERSIONS, list(self.truths), self)


@pytest.mark.parametrize("change", [SLOWER, FASTER, STATUS])
@pytest.mark.parametrize("first", range(1, 16))
def test_every_place_of_a_change_is_found_in_few_steps(change: str, first: int) -> None:
    world = World({"m": lambda place: change if place >= first else SAME})
    assert world.search() == {"m": (change, VERSIONS[first - 1 : first + 1])}
    assert len(world.asked) <= 1 + 4


def test_several_models_share_the_steps() -> None:
    changes: dict[str, Truth] = {
        name: lambda place, first=first: SLOWER if place >= first else SAME  # type: ignore[misc]
        for name, first in (("a", 7), ("b", 8), ("c", 8), ("d", 99))
    }
    world = World(changes)
    answers = world.search()
    first = {name: window[-1] for name, (_, window) in answers.items() if len(window) == 2}
    assert first == {"a": "2.7", "b": "2.8", "c": "2.8"}
    assert answers["d"][0] == SAME
    assert len(world.asked) <= 1 + 5
    assert all(names == {"a", "b", "c"} for _, names in world.asked[1:])


@pytest.mark.parametrize("change", [SAME, OPEN])
def test_ends_that_do_not_differ_are_not_searched(change: str) -> None:
    world = World({"m": lambda place: change if place == 15 else SLOWER})
    assert world.search() == {"m": (change, VERSIONS)}
    assert [version for version, _ in world.asked] == ["2.15"]


def test_versions_that_cannot_be_judged_stay_between() -> None:
    def truth(place: int) -> str:
        return OPEN if place == 9 else SLOWER if place > 9 else SAME

    world = World({"m": truth}, missing=("2.8",))
    assert world.search() == {"m": (SLOWER, ("2.7", "2.8", "2.9", "2.10"))}
    with pytest.raises(UsageError, match="pip finds no"):
        World({"m": truth}, missing=("2.15",)).search()


def test_a_change_of_status_is_searched_by_status_alone() -> None:
    """A version that passes as the oldest does is before the change, whatever its speed is."""
    world = World({"m": lambda place: STATUS if place >= 9 else OPEN})
    assert world.search() == {"m": (STATUS, ("2.8", "2.9"))}


def test_two_results_of_one_name_are_refused_and_points_are_results_of_their_own() -> None:
    job = make_job("m", candidates=("inductor",))
    point = replace(job, case=replace(job.case, point=("batch=4",)))
    assert set(followed([job, point])) == {ONE, "m (batch=4) training float32 cpu, inductor"}
    other = replace(job, case=replace(job.case, suite="other"))
    with pytest.raises(UsageError, match=f"two models are called {ONE}; leave out one of them"):
        followed([job, other])


# -- outcomes ----------------------------------------------------------------------


def in_environments(older: dict[str, Any], newer: dict[str, Any], processes: int = 3) -> list[Record]:
    """Inductor in two environments: ``older`` and ``newer`` are arguments of ``make_record``."""
    names, protocol = ("old", "new"), Protocol(processes=processes)
    candidates = tuple(f"inductor@{name}" for name in names)
    job = make_job("m", candidates=candidates, environments=make_environments(*names), protocol=protocol)
    records = []
    for name, arguments in zip(names, (older, newer), strict=True):
        record = make_record(job, f"inductor@{name}", jitter=0.002, rounds=30, **arguments)
        if record.samples is not None:
            counts = tuple(30 // processes for _ in range(processes)) if processes > 1 else ()
            record = with_samples(record, round_index=tuple(range(30)), rounds_by_process=counts)
        records.append(replace(record, env=name))
    return records


@pytest.mark.parametrize(
    ("older", "newer", "change", "worse", "text"),
    [
        ({}, {}, SAME, False, "pass, 1.0"),
        ({}, {"speedup": 1.25}, FASTER, False, "pass, 1.2"),
        ({}, {"speedup": 0.8}, SLOWER, True, "pass, 0.8"),
        ({}, {"status": Status.CRASH}, STATUS, True, "pass -> crash, SIGSEGV"),
        ({"status": Status.CRASH}, {}, STATUS, False, "crash -> pass"),
        ({"status": Status.CRASH}, {"status": Status.CRASH}, SAME, False, "crash"),
        ({"speedup": None}, {"speedup": None}, OPEN, False, "pass, no speed"),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_outcomes(
    older: dict[str, Any], newer: dict[str, Any], change: str, worse: bool, text: str, reverse: bool
) -> None:
    records = in_environments(older, newer)
    ((name, outcome),) = result_changes(records[::-1] if reverse else records, "old", "new").items()
    assert name == ONE
    assert (outcome.change, outcome.worse) == (change, worse)
    assert outcome.text.startswith(text)


def test_below_three_processes_a_speed_is_not_decided_and_a_missing_record_is_no_outcome() -> None:
    (outcome,) = result_changes(in_environments({}, {"speedup": 0.5}, processes=1), "old", "new").values()
    assert outcome.change == OPEN
    assert result_changes(in_environments({}, {})[:1], "old", "new") == {}


# -- versions ----------------------------------------------------------------------


def there(package: str) -> Sequence[str]:
    return ("2.13.0+cpu", "2.13.0", "2.12.1", "2.12.0", "2.12.0rc1", "2.11.0", "2.2.2")


@pytest.mark.parametrize(
    ("text", "versions", "beside"),
    [
        ("torch==2.11.0..2.13.0", ("2.11.0", "2.12.0", "2.12.1", "2.13.0"), ""),
        ("torch==2.2.2..2.12.0 numpy<2", ("2.2.2", "2.11.0", "2.12.0"), "numpy<2"),
        ("torch==2.12.0rc1..2.12.1", ("2.12.0rc1", "2.12.0", "2.12.1"), ""),
        ("torch==1.0,3.0", ("1.0", "3.0"), ""),
        ("timm==2.11.0..2.12.0 torch==2.13.0", ("2.11.0", "2.12.0"), "torch==2.13.0"),
    ],
)
def test_versions(text: str, versions: tuple[str, ...], beside: str) -> None:
    builds = builds_asked(text, there)
    assert tuple(build.name.partition("-")[2] for build in builds) == versions
    assert all({*beside.split()} < {*build.requirements} for build in builds)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("torch==2.13.0", "names no versions to choose from; write torch==2.11.0"),
        ("torch==2.11.0..2.13.0 timm==1..2", "follows two packages"),
        ("timm==1..2", "does not say which torch"),
        ("torch==2.13.0..2.11.0", "name two or more versions, each once, the oldest first"),
        ("torch==2.11.5..2.13.0", "pip finds no torch 2.11.5; it finds 2.13.0+cpu, 2.13.0"),
        ("torch==2.11.0..next", "Invalid version: 'next'; write"),
    ],
)
def test_bad_versions(text: str, sentence: str) -> None:
    with refused(sentence, "--bisect: "):
        builds_asked(text, there)


def test_what_pip_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = "torch (2.13.0)\nAvailable versions: 2.13.0, 2.12.1"
    pip = executable(tmp_path / "python", f"#!/bin/sh\necho '{said}'\n")
    monkeypatch.setattr("sys.executable", str(pip))
    assert pip_versions("torch") == ["2.13.0", "2.12.1"]
    pip.write_text("#!/bin/sh\necho 'ERROR: No matching distribution' >&2; exit 1\n")
    with pytest.raises(UsageError, match=r"no versions of nothing \(ERROR: No matching distribution\)"):
        pip_versions("nothing")
    pip.write_text("#!/bin/sh\necho 'WARNING: Retrying' >&2; exec sleep 9\n")
    monkeypatch.setattr("runner.runs.bisect.PIP_TIMEOUT_S", 0.3)
    with pytest.raises(UsageError, match=r"no versions of torch \(Command .* timed out after 0.3 seconds\)"):
        pip_versions("torch")


# -- the command -------------------------------------------------------------------


def printed(call: Callable[[Console], int]) -> tuple[int, list[str]]:
    with Console(width=200) as console, console.capture() as text:
        code = call(console)
    return code, text.get().splitlines()


@pytest.mark.parametrize(
    ("first", "missing", "code", "sentence"),
    [
        (6, 99, GOOD, "slower with torch-2.6, not with torch-2.5."),
        (99, 99, GOOD, "no change from torch-2.0 to torch-2.15."),
        (6, 6, BAD, "slower with torch-2.7, not with torch-2.5 (not decided: torch-2.6)."),
    ],
)
def test_the_answer_is_printed(first: int, missing: int, code: int, sentence: str, tmp_path: Path) -> None:
    def run(path: Path, both: Sequence[EnvSpec], jobs: Collection[Job]) -> Mapping[str, ResultChange]:
        path.mkdir()
        place = VERSIONS.index(both[1].name.removeprefix("torch-"))
        if place == missing:
            raise UsageError("pip finds no such torch")
        assert both[0].requirements == ("torch==2.0", "numpy<2")
        return {ONE: ResultChange(change=SLOWER if place >= first else SAME, text="pass")}

    jobs = followed([make_job("m", candidates=("inductor",))])
    asked = builds_asked(f"torch=={','.join(VERSIONS)} numpy<2", there)
    ended, lines = printed(lambda console: bisect(asked, jobs, tmp_path, console, run))
    assert ended == code
    assert lines[1] == f"torch-2.15 beside torch-2.0: {ONE}: pass (01-torch-2.15)"
    assert lines[-1] == f"{ONE}: {sentence}"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({ONE: SAME}, GOOD),
        ({ONE: FASTER}, GOOD),
        ({ONE: SLOWER}, BAD),
        ({ONE: OPEN}, CANNOT_JUDGE),
        ({}, CANNOT_JUDGE),
        (UsageError("--envs: the build cannot import torch"), CANNOT_JUDGE),
        (OSError(28, "No space left on device"), CANNOT_JUDGE),
        (SameEnvironments("--envs: good and new are the same environment"), GOOD),
    ],
)
def test_a_step_of_git_bisect_run_is_an_exit_code(changes: dict[str, str] | Exception, code: int) -> None:
    def measure() -> Mapping[str, ResultChange]:
        if isinstance(changes, Exception):
            raise changes
        return {n: ResultChange(change=c, text="", worse=c == SLOWER) for n, c in changes.items()}

    jobs = followed([make_job("m", candidates=("eager", "inductor"))])
    assert printed(lambda console: judge(jobs, console, measure))[0] == code


def test_a_folder_of_an_earlier_step_is_no_bad_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "records.jsonl").touch()
    what = ["--training", "--suites=tiny_gpt", "--only=MLP_addition", "-dcpu", "--compilers=inductor"]
    builds = ["--envs=good=/good/python", "--envs=new=/new/python"]
    assert main(["--bisect", *builds, *what, f"--output-dir={tmp_path}"]) == CANNOT_JUDGE
    assert f"error: --output-dir: {tmp_path} holds another run" in capsys.readouterr().err


def test_without_times_the_status_is_the_result() -> None:
    records = in_environments({"speedup": None}, {"speedup": None})
    jobs = [replace(r.job, protocol=replace(r.job.protocol, performance=False)) for r in records]
    records = [replace(record, job=job) for record, job in zip(records, jobs, strict=True)]
    (outcome,) = result_changes(records, "old", "new").values()
    assert (outcome.change, outcome.text) == (SAME, "pass")
