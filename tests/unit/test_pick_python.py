"""Which interpreter make installs with, on machines with pythons of all kinds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.versions.environments import TABLE

ROOT = Path(__file__).parents[2]
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


def pick(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / ".ci" / "python"), *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


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
    done = pick(machine(tmp_path, pythons))
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, expected, "")


def test_none_is_one_sentence(tmp_path: Path) -> None:
    done = pick(machine(tmp_path, {"python3": "3.9"}))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "make PYTHON=" in done.stderr


def test_one_that_is_too_old_names_those_that_work(tmp_path: Path) -> None:
    environment = machine(tmp_path, {"python3": "3.9", "python3.11": "3.11"})
    done = pick(environment, "python3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("these work: python3.11\n")


def test_its_versions_are_those_of_make_versions() -> None:
    minors = sorted({int(row.python.partition(".")[2]) for row in TABLE})
    text = (ROOT / ".ci" / "python").read_text()
    assert f"oldest={minors[0]} newest={minors[-1]} " in text
