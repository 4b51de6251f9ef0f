"""The search over versions, with made-up runs: it must find the change, and say when it cannot tell."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from harness.schema import Record, Status
from runner.analysis.statistics import student
from runner.errors import UsageError
from runner.plan.config import RunConfig, Where
from runner.runs.bisect.command import bisect
from runner.runs.bisect.evidence import evidence
from runner.runs.bisect.search import Evidence, SearchResult, pooled, search
from runner.runs.bisect.versions import pip_versions, versions_asked
from tests.command_line import config_of_words, parsed
from tests.factories import make_job, make_record

VERSIONS = tuple(f"2.{minor}" for minor in range(16))


class World:
    """What is true of every version, and a clock's worth of noise on top."""

    def __init__(
        self,
        speed: Callable[[int], float] = lambda place: 1.0,
        status: Callable[[int], str] = lambda place: "pass",
        *,
        noise: float = 0.005,
        missing: Sequence[str] = (),
        versions: Sequence[str] = VERSIONS,
    ) -> None:
        self.versions = tuple(versions)
        self.speed, self.status, self.noise, self.missing = speed, status, noise, missing
        self.rng = np.random.default_rng(7)
        self.asked: list[tuple[str, str]] = []

    def __call__(self, older: str, newer: str) -> Evidence:
        if newer in self.missing:
            raise UsageError(f"pip finds no torch=={newer}")
        self.asked.append((older, newer))
        one, other = self.versions.index(older), self.versions.index(newer)
        valid = self.status(one) == self.status(other) == "pass"
        value = math.log(self.speed(other) / self.speed(one)) + self.rng.normal(0, self.noise)
        return Evidence(
            against=older,
            version=newer,
            status_against=self.status(one),
            status=self.status(other),
            speed=student(value, [(self.noise**2, 20)]) if valid else None,
            rounds=20,
        )

    def search(self) -> SearchResult:
        return search(self.versions, self, lambda found: None)


@pytest.mark.parametrize("first", range(1, 16))
def test_every_place_of_a_slower_version_is_found(first: int) -> None:
    world = World(lambda place: 0.9 if place >= first else 1.0)
    found = world.search()
    assert (found.what, found.last_old, found.first_new) == (
        "speed",
        VERSIONS[first - 1],
        VERSIONS[first],
    )
    assert (found.sure, found.confirmed) == (True, True)
    assert len(found.steps) == len(world.asked) <= 1 + 4 + 1 + 2, "ends, four halvings, a look at both"


@pytest.mark.parametrize("first", [1, 7, 15])
def test_a_failure_is_found_and_comes_before_speed(first: int) -> None:
    world = World(lambda place: 2.0 if place > 3 else 1.0, lambda p: "crash" if p >= first else "pass")
    found = world.search()
    assert (found.what, found.first_new, found.confirmed) == ("status", VERSIONS[first], True)


def test_a_gain_is_found_like_a_loss() -> None:
    assert World(lambda place: 1.3 if place >= 5 else 1.0).search().first_new == "2.5"


def test_the_same_ends_are_not_searched() -> None:
    world = World(lambda place: 0.5 if place == 8 else 1.0)
    found = world.search()
    assert (found.what, found.confirmed) == ("", None)
    assert world.asked == [("2.0", "2.15")]


def test_a_small_change_is_none() -> None:
    assert World(lambda place: 0.99 if place >= 5 else 1.0, noise=0.001).search().what == ""


def test_two_versions_need_one_run() -> None:
    world = World(lambda place: 0.8 if place else 1.0, versions=("1", "2"))
    found = world.search()
    assert (found.first_new, found.confirmed, len(found.steps)) == ("2", True, 1)


def test_versions_that_cannot_be_had_are_left_out_and_named() -> None:
    world = World(lambda place: 0.8 if place >= 9 else 1.0, missing=("2.7", "2.8"))
    found = world.search()
    assert (found.last_old, found.first_new) == ("2.6", "2.9")
    assert "2.8" in found.skipped
    assert found.skipped["2.7"] == "pip finds no torch==2.7"
    with pytest.raises(UsageError, match="pip finds no"):
        World(missing=("2.15",)).search()


def test_a_version_that_fails_while_speed_is_followed_is_left_out() -> None:
    world = World(lambda place: 0.8 if place >= 9 else 1.0, lambda p: "crash" if p == 8 else "pass")
    found = world.search()
    assert (found.last_old, found.first_new) == ("2.7", "2.9")
    assert found.skipped == {"2.8": "2.8 has no speed: its status is crash"}


def test_what_lies_halfway_is_asked_again_and_then_not_guessed() -> None:
    def half(place: int) -> float:
        return 1.0 if place == 0 else 0.8 if place == 15 else math.sqrt(0.8)

    found = World(half, noise=0.02).search()
    assert not found.sure
    assert found.confirmed is None
    assert len(found.steps) == 4


def test_noise_is_asked_again_until_it_is_sure() -> None:
    """5 % of change, 2 % of noise a run: what is found is nearly always right, or nothing is claimed."""
    right = wrong = 0
    for seed in range(60):
        world = World(lambda place: 0.9 if place >= 6 else 1.0, noise=0.02)
        world.rng = np.random.default_rng(seed)
        found = world.search()
        if found.what and found.sure and found.confirmed:
            right += found.first_new == "2.6"
            wrong += found.first_new != "2.6"
    assert right >= 25
    assert wrong <= 3


def test_small_steps_are_not_called_one() -> None:
    found = World(lambda place: 0.97**place, noise=0.002).search()
    assert found.what == "speed"
    assert found.confirmed, "each step of 3 % is a change"
    tiny = World(lambda place: 0.995**place, noise=0.004).search()
    assert tiny.what == "speed"
    assert not (tiny.sure and tiny.confirmed)


def test_answers_that_disagree_are_less_sure_than_each_claims() -> None:
    apart = pooled([student(0.0, [(1e-6, 20)]), student(0.1, [(1e-6, 20)])])
    assert apart.error == pytest.approx(0.05)
    assert apart.df == 1
    alike = pooled([student(0.05, [(1e-4, 20)])] * 2)
    assert alike.error == pytest.approx(0.01 / math.sqrt(2))


# -- evidence ----------------------------------------------------------------------


def in_environment(name: str, *, speedup: float, rounds: Sequence[int], **changes: object) -> Record:
    record = make_record(make_job(), speedup=speedup, rounds=len(rounds), jitter=0.002, **changes)  # type: ignore[arg-type]
    assert record.samples is not None
    samples = replace(record.samples, round_index=tuple(rounds))
    return replace(record, candidate=f"inductor@{name}", env=name, samples=samples)


def test_evidence_is_from_the_rounds_that_both_have() -> None:
    older = in_environment("old", speedup=1.0, rounds=range(20))
    newer = in_environment("new", speedup=1.25, rounds=range(20))
    whole = evidence([older, newer], "inductor", "old", "new")
    assert whole.rounds == 20
    assert whole.speed is not None
    assert whole.speed.factor == pytest.approx(1.25, rel=0.01)
    assert whole.speed.df == 19
    shifted = replace(newer, samples=replace(newer.samples, round_index=tuple(range(5, 25))))  # type: ignore[type-var]
    assert evidence([older, shifted], "inductor", "old", "new").rounds == 15


def test_evidence_of_what_failed() -> None:
    older = in_environment("old", speedup=1.0, rounds=range(20))
    crashed = replace(make_record(make_job(), status=Status.CRASH), candidate="inductor@new")
    found = evidence([older, crashed], "inductor", "old", "new")
    assert (found.status_against, found.status, found.speed) == ("pass", "crash", None)
    assert found.failure.startswith("SIGSEGV")
    assert evidence([older], "inductor", "old", "new").status == "no record"


# -- versions ----------------------------------------------------------------------


def there(package: str) -> Sequence[str]:
    return ("2.13.0+cpu", "2.13.0", "2.12.1", "2.12.0", "2.12.0rc1", "2.11.0", "2.2.2")


@pytest.mark.parametrize(
    ("text", "versions", "beside"),
    [
        ("torch==2.11.0..2.13.0", ("2.11.0", "2.12.0", "2.12.1", "2.13.0"), ()),
        ("torch==2.2.2..2.12.0 numpy<2", ("2.2.2", "2.11.0", "2.12.0"), ("numpy<2",)),
        ("torch==2.12.0rc1..2.12.1", ("2.12.0rc1", "2.12.0", "2.12.1"), ()),
        ("torch==1.0,3.0", ("1.0", "3.0"), ()),
        ("timm==2.11.0..2.12.0 torch==2.13.0", ("2.11.0", "2.12.0"), ("torch==2.13.0",)),
    ],
)
def test_versions(text: str, versions: tuple[str, ...], beside: tuple[str, ...]) -> None:
    found = versions_asked(text, there)
    assert (found.versions, found.beside) == (versions, beside)
    assert found.requirements("9")[1:] == beside


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("torch", "names no versions to choose from; write torch==2.11.0"),
        ("torch==2.13.0", "names no versions to choose from"),
        ("torch==2.11.0..2.13.0 timm==1..2", "follows two packages"),
        ("timm==1..2", "does not say which torch"),
        ("torch==2.13.0..2.11.0", "2.13.0 is not older than 2.11.0; name the older"),
        ("torch==2.13.0,2.11.0", "2.13.0 is not older than 2.11.0; name each once"),
        ("torch==2.11.5..2.13.0", "pip finds no torch 2.11.5; the nearest are 2.11.0"),
        ("torch==2.11.0..next", "'next' is not a version"),
        ("torch==2.11.0,", "names no versions"),
    ],
)
def test_bad_versions(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        versions_asked(text, there)
    assert str(caught.value).startswith("--bisect: ")
    assert sentence in str(caught.value)


def test_what_pip_says(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "torch (2.13.0)\nAvailable versions: 2.13.0, 2.12.1\n  INSTALLED: 2.13.0\n"
    monkeypatch.setattr("subprocess.run", lambda *_, **__: Said(said, ""))
    assert pip_versions("torch") == ("2.13.0", "2.12.1")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: Said("", "ERROR: No matching distribution\n"))
    with pytest.raises(UsageError, match=r"pip finds no versions of nothing \(No matching distribution\)"):
        pip_versions("nothing")


class Said:
    def __init__(self, stdout: str, stderr: str) -> None:
        self.stdout, self.stderr = stdout, stderr


# -- the command -------------------------------------------------------------------


def config(*words: str) -> RunConfig:
    flags = ["--training", "--bisect=torch==2.0..2.3", "--devices=cpu", *words]
    return config_of_words(flags)


ONE = ("--only=MLP_addition", "--inductor")


def run(folder: Path, world: World, *words: str) -> tuple[int, str]:
    with Console(width=200) as console, console.capture() as printed:
        code = bisect(
            f"torch=={','.join(world.versions)}",
            config(*ONE, f"--output-dir={folder}", *words),
            Where(),
            [],
            console,
            measure=world,
        )
    return code, printed.get()


def test_the_evidence_is_printed_and_kept(tmp_path: Path) -> None:
    world = World(lambda place: 0.9 if place >= 6 else 1.0)
    code, text = run(tmp_path / "b", world)
    assert code == 0
    assert "2.15 beside 2.0: pass, 0.9" in text
    assert (
        "The speed of MLP_addition with inductor changes between torch 2.5 and 2.6: "
        "the first version with it is 2.6." in text
    )
    kept = json.loads((tmp_path / "b" / "bisect.json").read_text())
    assert (kept["last_old"], kept["first_new"], kept["sure"], kept["confirmed"]) == (
        "2.5",
        "2.6",
        True,
        True,
    )
    assert len(kept["steps"]) == len(world.asked)
    with pytest.raises(UsageError, match="is not empty; name a new folder"):
        run(tmp_path / "b", world)


def test_what_cannot_be_told_is_said_and_exits_1(tmp_path: Path) -> None:
    code, text = run(tmp_path, World(lambda p: {0: 1.0, 15: 0.8}.get(p, math.sqrt(0.8)), noise=0.02))
    assert code == 1
    assert "cannot be distinguished" in text
    same, said = run(tmp_path / "same", World())
    assert same == 0
    assert "MLP_addition with inductor does not change from torch 2.0 to 2.15" in said


def test_one_model_with_one_compiler(tmp_path: Path) -> None:
    for words, sentence in (
        (("--inductor",), r"choose \d+ models, devices or precisions; name one, with --only"),
        (("--only=MLP_addition",), "one compiler is followed, not aot_eager, inductor, torchscript"),
    ):
        with pytest.raises(UsageError, match=sentence):
            bisect("torch==1,2", config(*words), Where(), [], Console(), measure=World())
    for extra, sentence in (
        ("--envs=torch==2.2.2", "makes its own environments"),
        ("--executor=ray", "measures on this machine"),
    ):
        with pytest.raises(UsageError, match=sentence):
            parsed(["--training", "--bisect=torch==2.0..2.3", "--devices=cpu", *ONE, extra])
