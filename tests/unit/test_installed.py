"""A checkout beside a user's own modules. ``test_wheel.py`` has the wheel."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("own", ["runner.py", "harness.py", "harness/__init__.py", "runner/__init__.py"])
def test_a_module_of_the_same_name_is_named_in_one_sentence(tmp_path: Path, own: str) -> None:
    (tmp_path / own).parent.mkdir(exist_ok=True)
    (tmp_path / own).write_text("x = 1\n")
    done = python(tmp_path, "from torchduet import compare")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    name = own.partition("/")[0].removesuffix(".py")
    assert last.startswith(
        f"ImportError: torchduet needs its own package '{name}', but Python finds {tmp_path}"
    )


def test_the_command_says_so_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "runner.py").write_text("x = 1\n")
    done = python(tmp_path, "import sys; from torchduet.__main__ import main; sys.exit(main())")
    assert done.returncode == 2
    assert done.stderr.startswith("error: torchduet needs its own package 'runner', but Python finds")
    assert len(done.stderr.splitlines()) == 1
