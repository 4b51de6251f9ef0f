"""The examples of docs/HOWTO.md, put into a copy of the project where they say they belong, and run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cli.command import ROOT, records

BLOCK = re.compile(r"^```python\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def copy_with_examples(folder: Path) -> list[str]:
    for name in ("harness", "runner", "suites"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "runner.py", folder)
    examples = BLOCK.findall((ROOT / "docs" / "HOWTO.md").read_text(encoding="utf-8"))
    for name, text in examples:
        assert not (folder / name).exists(), name
        (folder / name).write_text(text, encoding="utf-8")
    return [name for name, _ in examples]


def test_every_example_works_as_it_stands(tmp_path: Path) -> None:
    copied = tmp_path / "project"
    copied.mkdir()
    assert [name.rsplit("/", 1)[0] for name in copy_with_examples(copied)] == [
        "suites",
        "harness/backends",
        "harness/metrics",
        "runner/reports",
    ]
    run = tmp_path / "run"
    words = ["--suites=spirals", "--inference", "--quick", "--devices=cpu", "--scale=tiny", "--threads=1"]
    words += ["--compilers=fx,eager", "-n6", "--no-fork-server", "--format=txt", f"--output-dir={run}"]
    done = subprocess.run(
        [sys.executable, "runner.py", *words],
        cwd=copied,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = records(run)
    assert [(r["candidate"], r["status"]) for r in found] == [("fx", "pass"), ("eager", "pass")]
    assert all(r["job"]["case"]["name"] == "narrow" for r in found)
    assert all(r["metrics"]["candidate_processor_s"] > 0 for r in found)
    # one model has no interval over models
    assert re.fullmatch(r"fx \d[\d.]*x, eager \d[\d.]*x\n", (run / "one_line.txt").read_text())
    made = {path.name for path in run.iterdir() if path.is_file()}
    assert made == {"run.json", "records.jsonl", "one_line.txt", "gh_executive_summary.txt"}
