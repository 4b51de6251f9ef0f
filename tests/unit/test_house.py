"""What keeps the house habitable: file lengths, no hidden state, no shell, no torch in the parent."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("runner", "harness", "suites", "studies", "benchmarks", "tests")
LONGEST = 500
MOST_MODULES = 300  # of the standard library and ours, that a page of help may import


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
    """At once: by what they import. A time would tell how busy the machine is."""
    program = (
        "import sys; from runner.cli.main import main\n"
        f"try: main({flags!r})\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pandas', 'scipy', 'matplotlib', 'rich', 'plotly', 'jinja2', 'psutil'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        f"assert len(sys.modules) < {MOST_MODULES}, len(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


# -- rooms -----------------------------------------------------------------------

ROOMS = ("runner", "harness", "suites", "studies", "torchduet")


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Of each module, those that it imports anywhere, but for type checkers alone."""
    graph = grimp.build_graph(*ROOMS, exclude_type_checking_imports=True)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def circles(imports: Mapping[str, Collection[str]]) -> list[set[str]]:
    """Sets of modules that import each other, directly or through others."""
    reached = {module: set(found) for module, found in imports.items()}
    for through in imports:
        for found in reached.values():
            if through in found:
                found.update(reached[through])
    inside = {module: {m for m in reached[module] if module in reached[m]} for module in imports}
    return [set(found) for found in {frozenset(found) for found in inside.values() if found}]


def test_the_check_for_circles_sees_them() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": []}) == [{"a", "b", "c"}]
    assert circles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_no_modules_import_each_other_in_a_circle(imports: dict[str, set[str]]) -> None:
    assert [sorted(circle) for circle in circles(imports)] == []


def test_nobody_imports_another_folders_private_files(imports: dict[str, set[str]]) -> None:
    private = [
        (module, other)
        for module, found in imports.items()
        for other in found
        if other.rpartition(".")[2].startswith("_") and module.rpartition(".")[0] != other.rpartition(".")[0]
    ]
    assert private == []


MOST_FILES = 12
PLUGINS = ("harness/backends", "harness/metrics")  # one file for each; what they share is elsewhere


def test_a_folder_has_a_dozen_files_at_most() -> None:
    counts = Counter(
        str(path.parent.relative_to(ROOT))
        for path in sources("runner", "harness", "studies")
        if path.name != "__init__.py"
    )
    assert {folder for folder, count in counts.items() if count > MOST_FILES} <= set(PLUGINS)


LINES = ROOT / "tests" / "data" / "lines.json"
SLACK = 40  # a room may be this much shorter than its number; then the number falls, too


def lines_by_room() -> dict[str, int]:
    """Lines of Python of each room: of a folder of runner and harness, else of a folder at the top."""
    rooms: Counter[str] = Counter()
    for path in sources("runner", "harness", "suites", "torchduet", "studies", "benchmarks", "tests"):
        parts = path.relative_to(ROOT).parts
        deep = parts[0] in ("runner", "harness") and len(parts) > 2
        rooms["/".join(parts[: 2 if deep else 1])] += len(path.read_text(encoding="utf-8").splitlines())
    return dict(rooms)


def test_a_room_grows_by_a_conscious_change_of_its_number() -> None:
    """``UPDATE_LINES=1`` writes the numbers anew. A commit that raises a number says what it buys."""
    lines = lines_by_room()
    if os.environ.get("UPDATE_LINES"):
        LINES.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
    frozen = json.loads(LINES.read_text(encoding="utf-8"))
    assert {room: count for room, count in lines.items() if count > frozen.get(room, 0)} == {}
    assert {room: count for room, count in frozen.items() if count > lines.get(room, 0) + SLACK} == {}
