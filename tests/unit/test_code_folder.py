"""What a worker of another environment finds on its path: this program, and nothing that lies beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runner.plan.environments.code_folder import code_folder


def installed(place: Path, version: str) -> Path:
    """An installation of this program, beside a torch."""
    root = place / version / "site-packages"
    for name in ("harness", "suites", "torch"):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").write_text(f"FOUND = {version!r}\n")
    return root


def test_a_checkout_is_used_as_it_is(tmp_path: Path) -> None:
    assert code_folder(tmp_path, {}) == tmp_path


def test_an_installed_program_is_found_without_the_torch_beside_it(tmp_path: Path) -> None:
    current = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    folder = code_folder(installed(tmp_path, "one"), current)
    program = (
        "import harness, suites; print(harness.FOUND)\ntry: import torch\nexcept ImportError: print('none')"
    )
    for _ in range(2):  # made, and found again
        assert code_folder(tmp_path / "one" / "site-packages", current) == folder
        done = subprocess.run(
            [sys.executable, "-S", "-c", program],
            cwd=tmp_path,
            env={"PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.split() == ["one", "none"], done.stderr


def test_two_installations_have_a_folder_each(tmp_path: Path) -> None:
    current = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert code_folder(installed(tmp_path, "one"), current) != code_folder(
        installed(tmp_path, "two"), current
    )


@pytest.mark.parametrize("cache", ["cache", "cache/torchduet"])
def test_the_installation_itself_where_no_links_can_be_made(tmp_path: Path, cache: str) -> None:
    (tmp_path / cache).parent.mkdir(exist_ok=True)
    (tmp_path / cache).write_text("a file is in the way")
    root = installed(tmp_path, "one")
    assert code_folder(root, {"XDG_CACHE_HOME": str(tmp_path / "cache")}) == root
