"""What a release says: its number and date, the versions it was tested with, and the Python of make."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from harness.loading.toml_file import read_toml
from harness.schema import Scalar
from runner.analysis.caveats import NEWEST, untested
from tests.command_line import ran
from tests.versions.environments import PINNED, TABLE

ROOT = Path(__file__).parents[2]
VERSION = read_toml(ROOT / "pyproject.toml")["project"]["version"]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_changelog_citation_and_the_example_of_the_action_have_this_version() -> None:
    headings = re.findall(r"^## (.+)$", text("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+, \d{4}-\d{2}-\d{2}", heading) for heading in headings[1:])
    citation = dict(re.findall(r"^(version|date-released): (\S+)$", text("CITATION.cff"), re.MULTILINE))
    assert headings[1] == f"{VERSION}, {citation['date-released']}"
    assert citation["version"] == VERSION
    assert re.findall(r"torchduet@v(\S+)", text("docs/CI.md")) == [VERSION]


# -- tested versions ------------------------------------------------------------


def pins(package: str) -> list[Version]:
    requirements = [Requirement(text) for row in TABLE for text in row.requirements if row.name != PINNED]
    return [
        Version(next(iter(one.specifier)).version)
        for one in requirements
        if one.name == package and str(one.specifier).startswith("==")
    ]


@pytest.mark.parametrize("package", NEWEST)
def test_the_newest_tested_is_what_make_versions_tests(package: str) -> None:
    assert Version(NEWEST[package]) == max(pins(package))


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"torch": None, "torchvision": None},
        {"torch": "2.0.1+cu117"},
        {"torch": f"{NEWEST['torch']}+cu132", "torchvision": NEWEST["torchvision"]},
        {"torch": "a build of my own"},
    ],
)
def test_nothing_is_said_of_what_was_tested_or_is_older(environment: Mapping[str, Scalar]) -> None:
    assert untested([environment]) is None


@pytest.mark.parametrize("version", ["3.1.0", "3.1.0+cu140", "3.1.0.dev20270101+cpu", "3.1.0a0+git1234"])
def test_a_newer_torch_is_named(version: str) -> None:
    sentence = untested([{"torch": "2.11.0"}, {"torch": version}])
    assert sentence == (
        "torch 3.1.0: newer than every version that torchduet was tested with "
        f"(up to torch {NEWEST['torch']})."
    )


# -- the Python of make ------------------------------------------------------------


NAMES = ("python3", "python3.10", "python3.11", "python3.12", "python3.13")


def machine(folder: Path, pythons: dict[str, str]) -> dict[str, str]:
    """A PATH on which these interpreters, by name, are of these versions; any other one is broken."""
    for name in NAMES:
        version = pythons.get(name, "broken")
        path = folder / name
        numbers = tuple(int(part) for part in version.split(".")) if version != "broken" else ()
        path.write_text(
            f"#!{sys.executable}\nimport sys\nassert {numbers}\n"
            f"sys.version_info = (*{numbers}, 0)\nexec(sys.argv[2])\n"
        )
        path.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}/usr/bin:/bin", "HOME": str(folder)}


def picked(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return ran(ROOT / ".ci" / "python", *words, env=environment)


@pytest.mark.parametrize(
    ("pythons", "expected"),
    [
        ({"python3": "3.12"}, "python3"),
        ({"python3": "3.9", "python3.12": "3.12"}, "python3.12"),
        ({"python3": "3.99", "python3.10": "3.10"}, "python3.10"),
        ({"python3.13": "3.13"}, "python3.13"),
    ],
)
def test_the_first_that_works_is_taken(tmp_path: Path, pythons: dict[str, str], expected: str) -> None:
    done = picked(machine(tmp_path, pythons))
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, expected, "")


def test_none_is_one_sentence(tmp_path: Path) -> None:
    done = picked(machine(tmp_path, {"python3": "3.9"}))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "make PYTHON=" in done.stderr


def test_one_that_is_too_old_names_those_that_work(tmp_path: Path) -> None:
    environment = machine(tmp_path, {"python3": "3.9", "python3.11": "3.11"})
    done = picked(environment, "python3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("these work: python3.11\n")


def test_its_versions_are_those_of_make_versions() -> None:
    minors = sorted({int(row.python.partition(".")[2]) for row in TABLE})
    text = (ROOT / ".ci" / "python").read_text()
    assert f"oldest={minors[0]} newest={minors[-1]} " in text
