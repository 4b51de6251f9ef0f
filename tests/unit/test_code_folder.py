"""What a worker of another environment finds on its path: this program, and no package beside it."""

import sys
from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.plan.environments.code_folder import code_folder
from runner.plan.environments.make import made
from tests.command_line import ran


def installed(place: Path, version: str) -> Path:
    """An installation of this program, beside a torch."""
    site = place / version / "site-packages"
    for name in ("torchduet", "torchduet/harness", "torch"):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text(f"FOUND = {version!r}\n")
    return site / "torchduet"


def test_a_checkout_is_used_as_it_is(tmp_path: Path) -> None:
    assert code_folder(tmp_path, {}, installed=False) == tmp_path


def test_an_installed_program_is_found_without_the_torch_beside_it(tmp_path: Path) -> None:
    current = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    folder = code_folder(installed(tmp_path, "one"), current, installed=True)
    program = (
        "from torchduet import harness; print(harness.FOUND)\n"
        "try: import torch\nexcept ImportError: print('none')"
    )
    for _ in range(2):  # made, and found again
        assert (
            code_folder(tmp_path / "one" / "site-packages" / "torchduet", current, installed=True) == folder
        )
        done = ran(sys.executable, "-S", "-c", program, cwd=tmp_path, env={"PYTHONPATH": str(folder)})
        assert done.stdout.split() == ["one", "none"], done.stderr


def test_the_installation_itself_for_a_user_without_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    package = installed(tmp_path, "one")
    assert code_folder(package, {}, installed=True) == package.parent
    with pytest.raises(UsageError, match=r"--envs: old cannot be made \(no home folder: HOME is not set\)"):
        made("old", ["torch==2.2.2"], print)


@pytest.mark.parametrize("cache", ["cache", "cache/torchduet"])
def test_the_installation_itself_where_no_links_can_be_made(tmp_path: Path, cache: str) -> None:
    (tmp_path / cache).parent.mkdir(exist_ok=True)
    (tmp_path / cache).write_text("a file is in the way")
    package = installed(tmp_path, "one")
    current = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert code_folder(package, current, installed=True) == package.parent
