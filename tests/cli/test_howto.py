"""The examples of docs/HOWTO.md, put into a copy of the project where they say they belong, and run."""

import csv
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.command import ROOT, records
from tests.command_line import ran

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


@pytest.mark.slow
def test_every_example_works_as_it_stands(tmp_path: Path) -> None:
    copied = tmp_path / "project"
    copied.mkdir()
    assert [name.rsplit("/", 1)[0] for name in copy_with_examples(copied)] == [
        "suites",
        "harness/backends",
        "my_backend.py",
        "harness/metrics",
        "runner/reports",
    ]
    run = tmp_path / "run"
    words = ["--suites=spirals", "--inference", "--quick", "--devices=cpu", "--scale=tiny", "--threads=1"]
    words += ["--compilers=fx,eager", "-n6", "--no-fork-server", "--format=txt,md,csv,html,json"]
    words += [f"--output-dir={run}"]
    done = ran(sys.executable, "runner.py", *words, cwd=copied, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    run_records = records(run)
    assert [(r["candidate"], r["status"]) for r in run_records] == [("fx", "pass"), ("eager", "pass")]
    assert all(r["job"]["case"]["name"] == "narrow" for r in run_records)
    assert all(r["metrics"]["candidate_processor_s"] > 0 for r in run_records)
    # one model has no interval over models
    assert re.fullmatch(r"fx \d[\d.]*x, eager \d[\d.]*x\n", (run / "one_line.txt").read_text())
    # the metric's one file is enough: its columns, its means, its panel
    report = (run / "report.md").read_text(encoding="utf-8")
    assert re.search(r"\| *processor s \|", report)
    (table,) = run.glob("fx_*_performance.csv")
    (row,) = csv.DictReader(table.read_text(encoding="utf-8").splitlines())
    assert float(row["candidate_processor_s"]) == pytest.approx(
        run_records[0]["metrics"]["candidate_processor_s"], rel=1e-4
    )
    assert float(row["processor_ratio"]) > 0
    (group, _) = json.loads((run / "summary.json").read_text(encoding="utf-8"))["groups"]
    assert (group["processor_n"], group["mean_processor_ratio"] > 0) == (1, True)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert '"header":"processor s"' in page


@pytest.mark.slow
def test_a_compiler_of_ones_own_works_as_the_page_says(tmp_path: Path) -> None:
    copied = tmp_path / "project"
    copied.mkdir()
    copy_with_examples(copied)
    page = (ROOT / "docs" / "HOWTO.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^python runner.py (--model=my_backend.py:make .*)$", page, re.MULTILINE)
    run = tmp_path / "run"
    words = [*command.split(), "-n6", "--devices=cpu", "--threads=1", f"--output-dir={run}"]
    done = ran(sys.executable, "runner.py", *words, cwd=copied, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {r["candidate"]: r["status"] for r in records(run)} == {
        "my_backend.no_dropout": "pass",
        "my_backend.traced": "pass",
        "eager": "pass",
    }
