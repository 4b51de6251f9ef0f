"""What keeps the house habitable: file lengths, no hidden state, no shell, no torch in the parent."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("runner", "harness", "suites", "studies", "benchmarks", "tests")
LONGEST = 400


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("path", sources(*FOLDERS), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_too_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST


@pytest.mark.parametrize(
    "path", sources("runner", "harness", "suites", "studies"), ids=lambda p: str(p.relative_to(ROOT))
)
def test_every_module_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text))


def mutable_globals(tree: ast.Module) -> Iterator[str]:
    """Names bound at module level to something mutable, unless in capitals (a constant by agreement)."""
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(
            node.value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
        ):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (t.id for t in targets if isinstance(t, ast.Name) and not t.id.isupper())
    for inner in ast.walk(tree):
        if isinstance(inner, ast.Global):
            yield from inner.names


def test_the_check_for_hidden_state_sees_it() -> None:
    tree = ast.parse("cache = {}\nLIMITS = [1]\ndef f():\n    global seen\n    seen = 1\n")
    assert list(mutable_globals(tree)) == ["cache", "seen"]


@pytest.mark.parametrize(
    "path", sources("runner", "harness", "suites", "studies"), ids=lambda p: str(p.relative_to(ROOT))
)
def test_no_hidden_state_and_no_shell(path: Path) -> None:
    text = path.read_text()
    assert list(mutable_globals(ast.parse(text))) == []
    assert "shell=True" not in text
    assert "os.system" not in text


def test_the_runner_never_imports_torch() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sources("runner")
        if path.name != "__init__.py"
    ]
    program = (
        f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


@pytest.mark.parametrize("flags", [["--help"], ["--list"], ["--list", "--inference", "-k", "MLP"]])
def test_help_and_list_answer_at_once_and_without_torch(flags: list[str]) -> None:
    program = (
        "import sys; from runner.cli import main\n"
        f"try: main({flags!r})\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'pandas', 'scipy', 'matplotlib', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    # processor time: what the machine does beside is not its fault
    assert min(cpu_seconds([sys.executable, "runner.py", *flags]) for _ in range(3)) < 0.5


def cpu_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
