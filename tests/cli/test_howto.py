"""What the documents ask people to type, typed: the table and the examples of EXTEND, the first pages."""

import csv
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.cli.command import ROOT, records, run_into
from tests.command_line import git, parsed, ran

EXTEND, YOUR_MODEL, GETTING_STARTED = (
    ROOT / "docs" / f"{name}.md" for name in ("EXTEND", "YOUR_MODEL", "GETTING_STARTED")
)
BLOCK = re.compile(r"^```(?:python|toml)\n# (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| an? (.+?) \| `(.+?)` \| (.*?) \|$", re.MULTILINE)
COMMAND = re.compile(r"^python runner\.py (.*)$", re.MULTILINE)
BRIEFLY = ("-n6", "--processes=1", "--devices=cpu", "--threads=1")
EXAMPLES = ROOT / "tests" / "extend"
FILES = sorted(str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py"))
TEXT = EXTEND.read_text(encoding="utf-8")
SECONDS = 600


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, with the examples where they say they belong."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("harness", "runner", "suites"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "runner.py", folder)
    for name in FILES:
        assert not (folder / name).exists(), name
        shutil.copy(EXAMPLES / name, folder / name)
    return folder


# -- adding each thing, in a copy of the repository ------------------------------------------------
@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of every file that git knows, with a history of its own, as `make golden` leaves it."""
    folder = tmp_path_factory.mktemp("repository")
    for name in git(ROOT, "ls-files").splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "--quiet")
    golden(folder)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=a copy")
    return folder


def golden(folder: Path) -> None:
    words = ("make", "golden", f"RUN={sys.executable}", "STAMP=")
    done = ran(*words, cwd=folder, env=of_copy(folder), timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


def of_copy(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder)}


FROZEN = "lines_are_at_most or declares or golden"
"""The tests of what `make golden` writes, in the files that the table names."""


def failing(folder: Path, files: Iterable[str]) -> set[str]:
    """Which of these files of tests have such a test that fails."""
    words = (
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        "-k",
        FROZEN,
        *(f"tests/unit/{name}.py" for name in files),
    )
    done = ran(sys.executable, "-m", "pytest", *words, cwd=folder, env=of_copy(folder), timeout=SECONDS)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {*re.findall(r"^FAILED tests/unit/(\w+)\.py", done.stdout, re.MULTILINE)}


def add(folder: Path, where: str) -> None:
    """The file of examples, or the block of EXTEND in its place: a table's end, the end of a tuple."""
    blocks = dict(BLOCK.findall(TEXT))
    if where in FILES:
        shutil.copy(EXAMPLES / where, folder / where)
    elif where.endswith(".toml"):
        with (folder / where).open("a", encoding="utf-8") as file:
            file.write(blocks[where])
    else:
        text = (folder / where).read_text(encoding="utf-8")
        assert text.endswith(",\n)\n")
        (folder / where).write_text(f"{text[:-2]}{blocks[where]})\n", encoding="utf-8")
    git(folder, "add", "--all")


def test_the_table_has_what_can_be_added() -> None:
    kinds = ["suite", "compiler", "metric", "report", "warning", "column", "view"]
    assert [what for what, _, _ in ROW.findall(TEXT)] == kinds
    assert {where for _, where, _ in ROW.findall(TEXT)} == {*FILES, *dict(BLOCK.findall(TEXT))}


@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "where", "tests"), ROW.findall(TEXT), ids=lambda text: str(text).split("/")[-1]
)
def test_adding_it_fails_where_the_table_says_until_make_golden(
    repository: Path, what: str, where: str, tests: str
) -> None:
    every = sorted({name for _, _, row in ROW.findall(TEXT) for name in re.findall(r"`(\w+)`", row)})
    try:
        add(repository, where)
        assert failing(repository, every) == {*re.findall(r"`(\w+)`", tests)}, what
        golden(repository)
        assert failing(repository, every) == set(), what
    finally:
        git(repository, "reset", "--quiet", "--hard")
        git(repository, "clean", "--quiet", "--force", "-d")


# -- the examples, run -------------------------------------------------------------------------------
def run_there(copied: Path, run: Path, *words: str) -> None:
    more = (*BRIEFLY, f"--output-dir={run}")
    done = ran(sys.executable, "runner.py", *words, *more, cwd=copied, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_every_example_works_as_it_stands(copied: Path, tmp_path: Path) -> None:
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
def test_a_compiler_of_ones_own_works_as_the_page_says(tmp_path: Path) -> None:
    (command,) = re.findall(
        r"^python runner.py (--model=examples/my_backend.py:make .*)$", TEXT, re.MULTILINE
    )
    words = [word.replace("examples/", f"{ROOT}/examples/") for word in command.split()]
    words = [
        f"{word},{ROOT}/examples/my_backend.py:traced" if "no_dropout" in word else word for word in words
    ]
    run_into(tmp_path / "run", *words, *BRIEFLY, cwd=tmp_path)
    assert {r["candidate"]: r["status"] for r in records(tmp_path / "run")} == {
        "my_backend.no_dropout": "pass",
        "my_backend.traced": "pass",
        "eager": "pass",
    }


@pytest.fixture
def train(tmp_path: Path) -> list[list[str]]:
    """The words of each command of YOUR_MODEL, whose file is in the folder."""
    text = YOUR_MODEL.read_text(encoding="utf-8")
    (source,) = (source for name, source in BLOCK.findall(text) if name == "train.py")
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    return [shlex.split(command) for command in COMMAND.findall(text)]


@pytest.mark.parametrize(
    "number",
    [pytest.param(0, marks=pytest.mark.slow), *(pytest.param(n, marks=pytest.mark.long) for n in (2, 3))],
)
def test_ones_own_model_works_as_the_page_says(train: list[list[str]], tmp_path: Path, number: int) -> None:
    """What is measured is the page's; with eager alone it takes no minute of compiling. `--why` needs one."""
    asked = [word for word in train[number] if not word.startswith("--compilers")]
    run = tmp_path / "run"
    run_into(run, *asked, "--compilers=eager", *BRIEFLY, cwd=tmp_path)
    assert {record["status"] for record in records(run)} == {"pass"}
    assert (run / "report.html").stat().st_size > 1_000_000


@pytest.mark.usefixtures("train")
def test_every_command_of_the_first_pages_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy("train.py", "my_models.py")
    pages = [path.read_text(encoding="utf-8") for path in (GETTING_STARTED, YOUR_MODEL, ROOT / "README.md")]
    commands = [re.sub(r"\s+#.*", "", command) for text in pages for command in COMMAND.findall(text)]
    assert len(commands) > 8
    for command in commands:
        parsed(shlex.split(command))
