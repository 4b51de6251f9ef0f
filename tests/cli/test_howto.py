"""What the documents ask people to type, typed: the examples of docs/HOWTO.md, the first pages."""

import csv
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.command import ROOT, records, run_into
from tests.command_line import parsed, ran

NAMES = ("HOWTO", "YOUR_MODEL", "GETTING_STARTED")
HOWTO, YOUR_MODEL, GETTING_STARTED = (ROOT / "docs" / f"{name}.md" for name in NAMES)
BLOCK = re.compile(r"^```python\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^python runner\.py (.*my_models.*)$", re.MULTILINE)
BRIEFLY = ("-n6", "--processes=1", "--devices=cpu", "--threads=1")
EXAMPLES = BLOCK.findall(HOWTO.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, with the examples where they say they belong."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("harness", "runner", "suites"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "runner.py", folder)
    for name, text in EXAMPLES:
        assert not (folder / name).exists(), name
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def run_there(copied: Path, run: Path, *words: str) -> None:
    more = (*BRIEFLY, f"--output-dir={run}")
    done = ran(sys.executable, "runner.py", *words, *more, cwd=copied, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_every_example_works_as_it_stands(copied: Path, tmp_path: Path) -> None:
    assert [name.rsplit("/", 1)[0] for name, _ in EXAMPLES] == [
        *("suites", "harness/backends", "my_backend.py", "harness/metrics", "runner/reports")
    ]
    run = tmp_path / "run"
    words = ("--suites=spirals", "--inference", "--quick", "--scale=tiny", "--compilers=fx,eager")
    run_there(copied, run, *words, "--no-fork-server", "--format=txt,md,csv,json")
    run_records = records(run)
    assert [(r["candidate"], r["status"]) for r in run_records] == [("fx", "pass"), ("eager", "pass")]
    assert all(r["job"]["case"]["name"] == "narrow" for r in run_records)
    assert all(r["metrics"]["candidate_processor_s"] > 0 for r in run_records)
    # one model has no interval over models
    assert re.fullmatch(r"fx \d[\d.]*x, eager \d[\d.]*x\n", (run / "one_line.txt").read_text())
    # the metric's one file is enough: its columns, its means
    report = (run / "report.md").read_text(encoding="utf-8")
    assert re.search(r"\| *processor s \|", report)
    (table,) = run.glob("fx_*_performance.csv")
    (row,) = csv.DictReader(table.read_text(encoding="utf-8").splitlines())
    assert float(row["processor_ratio"]) > 0
    (group, _) = json.loads((run / "summary.json").read_text(encoding="utf-8"))["groups"]
    assert (group["processor_n"], group["mean_processor_ratio"] > 0) == (1, True)


@pytest.mark.slow
def test_a_compiler_of_ones_own_works_as_the_page_says(copied: Path, tmp_path: Path) -> None:
    page = HOWTO.read_text(encoding="utf-8")
    (command,) = re.findall(r"^python runner.py (--model=my_backend.py:make .*)$", page, re.MULTILINE)
    run_there(copied, tmp_path / "run", *command.split())
    assert {r["candidate"]: r["status"] for r in records(tmp_path / "run")} == {
        "my_backend.no_dropout": "pass",
        "my_backend.traced": "pass",
        "eager": "pass",
    }


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(YOUR_MODEL, marks=pytest.mark.long, id="own"),
        pytest.param(GETTING_STARTED, marks=pytest.mark.slow, id="started"),
    ],
)
def test_ones_own_model_works_as_the_page_says(page: Path, tmp_path: Path) -> None:
    blocks = BLOCK.findall(YOUR_MODEL.read_text(encoding="utf-8"))
    (source,) = (source for name, source in blocks if name == "my_models.py")
    (command,) = COMMAND.findall(page.read_text(encoding="utf-8"))
    (tmp_path / "my_models.py").write_text(source, encoding="utf-8")
    run = tmp_path / "run"
    asked = [word for word in shlex.split(command) if not word.startswith(("--compilers", "--output-dir"))]
    # what is measured is the page's; with eager alone it takes no minute of compiling
    run_into(run, *asked, "--compilers=eager", *BRIEFLY, cwd=tmp_path)
    assert [record["status"] for record in records(run)] == ["pass"]
    assert (run / "report.html").stat().st_size > 1_000_000


def test_every_command_on_the_first_page_is_understood() -> None:
    text = GETTING_STARTED.read_text(encoding="utf-8")
    commands = re.findall(r"^python runner\.py (.*?)(?:\s+#.*)?$", text, re.MULTILINE)
    assert len(commands) > 3
    for command in commands:
        if "my_" not in command:  # a file of theirs: typed above
            parsed(shlex.split(command))
