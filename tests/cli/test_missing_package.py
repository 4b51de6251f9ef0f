"""Started with a Python that lacks what the project needs, as when the environment was not activated."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.command import ROOT


def test_a_missing_package_ends_in_one_sentence_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError(\"No module named 'rich'\", name='rich')\n")
    folder = tmp_path / "never"
    words = ("--suites=tiny_gpt", "--training", "--quick", "--devices=cpu", f"--output-dir={folder}")
    done = subprocess.run(
        [sys.executable, str(ROOT / "runner.py"), *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: the package rich is not installed for ")
    assert "make install" in line
    assert not folder.exists()
