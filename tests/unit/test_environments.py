"""What ``--envs`` means, how an environment is made and kept, and the sentences for what cannot be used."""

import json
import multiprocessing
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.schema import Environment, Job
from runner.errors import UsageError
from runner.plan.compilers import Usable
from runner.plan.environments import prepare
from runner.plan.environments.spec import environments_asked, in_environments, split_candidate
from runner.plan.interpreter import cache_root, code_folder
from tests.command_line import executable, refused
from tests.factories import Patch, make_job

OLD = Environment(name="old", python="/old/python", asked="/old/python", torch="2.2.2")
NEW = Environment(name="new", python="/new/python", asked="torch==2.13.0", torch="2.13.0")


# -- the words ------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "name", "python", "requirements"),
    [
        ("old=/usr/bin/python3", "old", "/usr/bin/python3", ()),
        ("torch==2.2.2", "torch-2.2.2", None, ("torch==2.2.2",)),
        ("a=torch==2.2.2 numpy<2", "a", None, ("torch==2.2.2", "numpy<2")),
        ("torch==2.2.2+cpu transformers==4.40.0", "torch-2.2.2+cpu", None, None),
        ("2.2=torch==2.2.2", "2.2", None, ("torch==2.2.2",)),
    ],
)
def test_words(text: str, name: str, python: str | None, requirements: tuple[str, ...] | None) -> None:
    (env,) = environments_asked([text], None)
    assert (env.name, (str(env.python) if env.python else None)) == (name, python)
    assert requirements is None or env.requirements == requirements


# -- making one -----------------------------------------------------------------
def pretended(folder: Path, requirements: Sequence[str]) -> None:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(" ".join(requirements))


def fine(python: Path, name: str) -> None:
    assert python.is_file()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "torchduet" / "envs"


def test_the_cache_is_where_the_person_keeps_caches() -> None:
    assert cache_root({"XDG_CACHE_HOME": "/c"}) == Path("/c/torchduet")
    assert cache_root({}) == Path.home() / ".cache/torchduet"
    assert cache_root({"XDG_CACHE_HOME": "not/absolute"}) == Path.home() / ".cache/torchduet"


def test_it_is_made_once_and_says_so(cache: Path) -> None:
    said: list[str] = []
    first = prepare.interpreter_with("old", ("torch==2.2.2",), said.append, pretended, fine)
    assert first.read_text() == "torch==2.2.2"
    assert first.is_relative_to(cache)
    assert any("making an environment" in line for line in said)
    said.clear()

    def never(folder: Path, requirements: Sequence[str]) -> None:
        raise AssertionError

    assert (prepare.interpreter_with("old", ("torch==2.2.2",), said.append, never, fine), len(said)) == (
        first,
        1,
    )
    assert "uses the environment" in said[0]


@pytest.mark.parametrize("when", ["install", "check"])
def test_a_half_made_one_is_not_kept(cache: Path, when: str) -> None:
    def install(folder: Path, requirements: Sequence[str]) -> None:
        pretended(folder, requirements)
        if when == "install":
            raise UsageError("pip failed")

    def check(python: Path, name: str) -> None:
        raise UsageError("its torch is broken")

    with pytest.raises(UsageError):
        prepare.interpreter_with("old", ("torch==2.2.2",), lambda _: None, install, check)
    assert [path for path in cache.iterdir() if path.is_dir()] == []
    assert prepare.interpreter_with("old", ("torch==2.2.2",), lambda _: None, pretended, fine).is_file()


def test_what_cannot_be_used_is_removed_and_made_again(cache: Path) -> None:
    left = cache / f".{prepare.key_of(('torch==2.2.2',))}.123.partial"
    left.mkdir(parents=True)
    (left / "half").touch()
    prepare.interpreter_with("old", ("torch==2.2.2",), lambda _: None, pretended, fine)
    assert not left.exists()
    # As the link of a virtual environment to a Python that was removed.
    python = prepare.interpreter_with("old", ("torch==2.2.2",), lambda _: None, pretended, fine)
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert prepare.interpreter_with("old", ("torch==2.2.2",), lambda _: None, pretended, fine).is_file()


def test_an_environment_that_another_run_has_made_meanwhile_stays(cache: Path) -> None:
    """On a file system without locks."""

    def other(python: Path, name: str) -> None:
        pretended(folder := python.parents[2] / prepare.key_of(("torch==2.2.2",)), ())
        (folder / "theirs").touch()

    with pytest.raises(UsageError, match="cannot be made"):
        prepare.interpreter_with("old", ("torch==2.2.2",), lambda _: None, pretended, other)
    assert [*cache.rglob("theirs")]


def slowly(folder: Path, requirements: Sequence[str]) -> None:
    time.sleep(0.5)
    pretended(folder, requirements)
    with (folder.parent / "makers").open("a") as file:
        file.write("x")


def test_two_runs_make_it_once(cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    asked = ("old", ("torch==2.2.2",), print, slowly, fine)
    runs = [context.Process(target=prepare.interpreter_with, args=asked) for _ in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(300)
    assert ([run.exitcode for run in runs], (cache / "makers").read_text()) == ([0, 0, 0], "x")


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="XDG_CACHE_HOME may name another folder"):
        prepare.interpreter_with("old", ("torch==2.2.2",), lambda _: None, pretended, fine)


@pytest.mark.parametrize("tool", ["venv", "pip"])
def test_a_tool_that_fails_is_one_sentence(tmp_path: Path, monkeypatch: Patch, tool: str) -> None:
    ran: list[str] = []

    def run(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(command[2])
        return subprocess.CompletedProcess(command, int(command[2] == tool))

    monkeypatch.setattr("subprocess.run", run)
    with pytest.raises(UsageError, match=f"^--envs: {tool} could not install torch==9.9; its messages are"):
        prepare.install_with_pip(tmp_path, ("torch==9.9",))
    assert ran[-1] == tool


# -- asking one -----------------------------------------------------------------
def says(path: Path, *lines: dict[str, Any], then: str = "") -> Path:
    texts = "".join(f"cat <<'END'\n{json.dumps(line)}\nEND\n" for line in lines)
    return executable(path, f"#!/bin/sh\n{texts}{then}\n")


PYTHON = {"python": "3.11.7", "version": [3, 11], "machine": os.uname().machine}
TORCH = {"torch": "2.2.2", "torch_file": "/x/torch/__init__.py"}


@pytest.mark.parametrize("path", ["~nobody-of-this-name/python", "/nul\0byte", "/new\nline", "./\udce4"])
def test_a_path_that_cannot_be_is_one_sentence(path: str) -> None:
    (asked,) = environments_asked([f"old={path}"], None)
    with pytest.raises(UsageError, match="--envs: old: there is no ") as raised:
        prepare.resolved([asked], lambda _: None)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("lines", "then", "sentence"),
    [
        ([{**PYTHON, "python": "3.8.1", "version": [3, 8]}], "", "is 3.8.1; a worker needs 3.10 or la"),
        ([{**PYTHON, "machine": "sparc"}, TORCH], "", "its Python is for sparc, this machine is"),
        ([PYTHON, {"torch": None, "torch_error": ""}], "", "it has no torch; install torch there"),
        ([PYTHON, {"torch_error": "OSError: wrong ELF class"}], "", "cannot be used (OSError: wrong ELF"),
        ([PYTHON, {**TORCH, "torch": "1.13.1"}], "", "its torch is 1.13.1; a worker needs 2.0 or later"),
        ([PYTHON], "kill -ILL $$", "importing its torch ends the process (SIGILL"),
        ([], "echo 'no such module' >&2; exit 1", "is not a working Python (no such module)"),
    ],
)
def test_what_cannot_be_used(tmp_path: Path, lines: list[dict[str, Any]], then: str, sentence: str) -> None:
    python = says(tmp_path / "python", *lines, then=then)
    with refused(sentence, "--envs: old: "):
        prepare.probe(python, "old")


def test_a_program_for_another_machine_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    for python, sentence in (
        (executable(tmp_path / "python", "not a program at all\0"), "is not a program for this machine"),
        (tmp_path / "plain", "cannot be run"),
        (tmp_path / "nowhere", "there is no "),
    ):
        with refused(sentence):
            prepare.probe(python, "old")


def test_two_names_for_one_environment_are_refused(tmp_path: Path) -> None:
    first = says(tmp_path / "one", PYTHON, TORCH)
    other = says(tmp_path / "other", {**PYTHON, "prefix": "/another/venv"}, TORCH)
    asked = environments_asked([f"a={first}", f"b={other}"], None)
    with pytest.raises(UsageError, match=r"a and b are the same environment \(torch 2.2.2, Python 3.11.7\)"):
        prepare.resolved(asked, lambda _: None)


@pytest.mark.parametrize("differing", [{"settings": {"OMP_NUM_THREADS": "1"}}, {"transformers": "4.40.0"}])
def test_another_setting_or_library_is_another_environment(tmp_path: Path, differing: dict[str, Any]) -> None:
    first = says(tmp_path / "one", PYTHON, TORCH)
    other = says(tmp_path / "other", PYTHON, {**TORCH, **differing})
    said: list[str] = []
    environments = prepare.resolved(environments_asked([f"a={first}", f"b={other}"], "b"), said.append)
    assert [(env.name, env.torch) for env in environments] == [("b", "2.2.2"), ("a", "2.2.2")]
    assert said[1] == "a: torch 2.2.2, Python 3.11.7"


def test_a_run_goes_on_only_with_the_same_torch(tmp_path: Path) -> None:
    python = says(tmp_path / "one", PYTHON, TORCH)

    def planned(torch: str, path: str = str(python)) -> list[Job]:
        return [make_job(environments=(Environment(name="a", python=path, asked="", torch=torch),))]

    prepare.check_still_there(planned("2.2.2"))
    with pytest.raises(UsageError, match=r"--resume: a has torch 2.2.2 now, but had 2.3.0"):
        prepare.check_still_there(planned("2.3.0"))
    with pytest.raises(UsageError, match="--resume: a: there is no /nowhere/python; put it back, or start"):
        prepare.check_still_there(planned("2.2.2", "/nowhere/python"))
    (job,) = planned("2.2.2")
    with pytest.raises(UsageError, match="it finds 0 CUDA devices; go on where the run began"):
        prepare.check_still_there([replace(job, device="cuda")])


# -- the plan -------------------------------------------------------------------
def test_a_candidate_says_where_it_runs() -> None:
    job = make_job(environments=(OLD, NEW))
    assert split_candidate(job, "inductor@new") == ("inductor", NEW)
    assert split_candidate(job, "eager@old") == ("eager", OLD)
    with pytest.raises(LookupError):
        split_candidate(job, "inductor@other")


def test_a_compiler_that_one_environment_lacks_has_a_reason_there() -> None:
    def ask(environment: Environment, device_type: str, names: Sequence[str]) -> dict[str, Usable]:
        why = "it is not installed" if environment is OLD else None
        return {name: Usable(what=name, why_not=why, modes=()) for name in names}

    job = make_job(candidates=("thunder", "inductor"))
    (planned,) = in_environments([job], (OLD, NEW), ask, skip=False)
    assert planned.unavailable == {"thunder@old": "thunder cannot be used here: it is not installed"}
    assert "thunder@new" in planned.candidates
    with pytest.raises(UsageError, match="in every environment thunder cannot be used here"):
        in_environments([job], (OLD,), ask, skip=False)
    (skipped,) = in_environments([job], (OLD,), ask, skip=True)
    assert "thunder@old" in skipped.unavailable


# -- what a worker of another environment finds on its path ------------------------------------
def installed(place: Path) -> Path:
    """An installation of this program, beside a torch."""
    for name in ("torchduet", "torch"):
        (place / "site-packages" / name).mkdir(parents=True)
    return place / "site-packages" / "torchduet"


def test_the_program_is_found_without_the_torch_beside_it(tmp_path: Path) -> None:
    assert code_folder(tmp_path, {}, installed=False) == tmp_path
    package, current = installed(tmp_path), {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    folder, again = (code_folder(package, current, installed=True) for _ in range(2))
    assert folder == again
    assert [path.resolve() for path in folder.iterdir()] == [package.resolve()]


def test_the_installation_itself_for_a_user_without_a_home(tmp_path: Path, monkeypatch: Patch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    package = installed(tmp_path)
    assert code_folder(package, {}, installed=True) == package.parent
    with pytest.raises(UsageError, match=r"--envs: old cannot be made \(no home folder: HOME is not set\)"):
        prepare.interpreter_with("old", ["torch==2.2.2"], print)


@pytest.mark.parametrize("cache", ["cache", "cache/torchduet"])
def test_the_installation_itself_where_no_links_can_be_made(tmp_path: Path, cache: str) -> None:
    (tmp_path / cache).parent.mkdir(exist_ok=True)
    (tmp_path / cache).write_text("a file is in the way")
    package = installed(tmp_path)
    current = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert code_folder(package, current, installed=True) == package.parent
