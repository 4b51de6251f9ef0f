"""``make coverage-devices``: which lines that mention a device do no tests reach?

    python -m tests.device_lines

Runs ``TESTS`` in one process, and ``TESTS_OF_PROCESSES`` with the processes that they start, and lists each
statement of ``FOLDERS`` that mentions a device and that no test has run. A statement mentions a device if a
name, an attribute or a text in it has one of ``WORDS``; comments and docstrings do not count. Statements of
a body count by themselves. All of ``harness/devices.py`` counts. The exit code is 0 if the list is empty
and the tests passed.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDERS = ("harness", "runner", "torchduet")
WHOLE = "harness/devices.py"
WORDS = re.compile(
    r"device|cuda|gpu|accelerat|nvml|synchroni[sz]e|tf32|empty_cache|\b(xpu|mps)\b", re.IGNORECASE
)
TESTS = ("tests/unit", "tests/worker")
TESTS_OF_PROCESSES = (
    *("tests/worker/test_fork_guard.py", "tests/worker/test_localize.py", "tests/cli/test_ranks.py"),
    *("-m", "not long"),
)
PROCESSES = "patch = subprocess, fork, _exit, execv"  # it changes what many other tests look at
SETTINGS = """[run]
data_file = {folder}/lines
parallel = true
source = {sources}
{processes}
"""


Unit = ast.stmt | ast.excepthandler
UNITS = (ast.stmt, ast.excepthandler)


def units(tree: ast.Module) -> Iterator[Unit]:
    """All statements and ``except`` clauses that can run: no docstrings, nothing for type checkers alone."""
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, UNITS):
            yield node
        typing = (
            isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        )
        left += [] if typing else ast.iter_child_nodes(node)


def head_of(unit: Unit) -> Iterator[ast.AST]:
    """The nodes of a statement, without the statements inside it."""
    left: list[ast.AST] = [unit]
    while left:
        node = left.pop()
        yield node
        left += [child for child in ast.iter_child_nodes(node) if not isinstance(child, UNITS)]


def mentions(unit: Unit) -> bool:
    """Whether a name, an attribute or a text of this statement has one of ``WORDS``."""
    for node in head_of(unit):
        for text in (getattr(node, name, None) for name in ("id", "attr", "arg", "value", "name", "module")):
            if isinstance(text, str) and WORDS.search(text):
                return True
    return False


def spans_of(path: Path) -> list[range]:
    """The lines of each statement that mentions a device, without the statements inside it."""
    whole = path == ROOT / WHOLE
    ranges = []
    for unit in units(ast.parse(path.read_text(encoding="utf-8"))):
        if whole or mentions(unit):
            numbers = [node.lineno for node in head_of(unit) if isinstance(node, (*UNITS, ast.expr))]
            ranges.append(range(min(numbers), max(numbers) + 1))  # a decorator is before its function
    return sorted(ranges, key=lambda span: span.start)


def spans() -> dict[Path, list[range]]:
    """The files that mention a device, and where."""
    files = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return {path: ranges for path in files if (ranges := spans_of(path))}


def lines_run(folder: Path, words: Sequence[str], processes: str = "") -> tuple[int, dict[str, set[int]]]:
    """Pytest's exit code, and each file's lines that these tests run."""
    folder.mkdir()
    settings = folder / "settings"
    sources = ",".join(str(ROOT / name) for name in FOLDERS)
    settings.write_text(
        SETTINGS.format(folder=folder, sources=sources, processes=processes), encoding="utf-8"
    )
    python = (sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-n0", *words)
    code = subprocess.run(python, cwd=ROOT, check=False).returncode
    coverage: Any = importlib.import_module("coverage")
    reader = coverage.Coverage(config_file=str(settings))
    reader.combine()
    data = reader.get_data()
    return code, {file: {*(data.lines(file) or ())} for file in data.measured_files()}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        failed, own = lines_run(Path(folder, "own"), TESTS)
        failed_too, others = lines_run(Path(folder, "others"), TESTS_OF_PROCESSES, PROCESSES)
    total, missed = 0, list[str]()
    for path, wanted in spans().items():
        run = own.get(str(path), set()) | others.get(str(path), set())
        text = path.read_text(encoding="utf-8").splitlines()
        total += len(wanted)
        missed += [
            f"{path.relative_to(ROOT)}:{span.start}: {text[span.start - 1].strip()}"
            for span in wanted
            if run.isdisjoint(span)
        ]
    print("\n".join(missed))
    print(f"{total - len(missed)} of {total} statements that mention a device have run")
    return 1 if failed or failed_too or missed else 0


if __name__ == "__main__":
    sys.exit(main())
