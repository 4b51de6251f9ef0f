"""Started with a Python that lacks what the project needs, as when the environment was not activated."""

import os
import sys
from pathlib import Path

from tests.cli.command import ROOT
from tests.command_line import ran


def test_a_missing_package_ends_in_one_sentence_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError(\"No module named 'rich'\", name='rich')\n")
    folder = tmp_path / "never"
    words = ("--suites=tiny_gpt", "--training", "--quick", "--devices=cpu", f"--output-dir={folder}")
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = ran(sys.executable, ROOT / "runner.py", *words, timeout=300, env=variables)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: the package rich is not installed for ")
    assert "make install" in line
    assert not folder.exists()
