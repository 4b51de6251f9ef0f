"""What keeps the house habitable: file lengths, no hidden state, no torch in the parent."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PRODUCTION = ("runner", "harness", "suites", "torchduet", "studies", "benchmarks")
LONGEST = 500
MOST_MODULES = 300  # of the standard library and ours, that a page of help may import


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def test_no_file_is_too_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources(*PRODUCTION, "tests")}
    assert {path for path, length in lengths.items() if length > LONGEST} == set()


def test_every_module_says_what_it_is() -> None:
    texts = {
        path: path.read_text(encoding="utf-8") for path in sources("runner", "harness", "suites", "studies")
    }
    assert [path for path, text in texts.items() if text and not text.startswith('"""')] == []


BANNED = {"found", "made", "one"}
BOUND = re.compile(r"\b_*(?:found|made|one)\b(?=[,)\]:(]| (?:\W{0,3}=|in\b))")  # or it only looks so


def banned_names(text: str) -> set[str]:
    """The banned names of variables, parameters and functions, without the underscores in front."""
    names = set[str]()
    for node in ast.walk(ast.parse(text)) if BOUND.search(text) else ():
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return {name.lstrip("_") for name in names} & BANNED


def test_nothing_is_called_found_made_or_one() -> None:
    for text in ("made = 1", "_one: int = 1", "for a, found in b: pass", "def one(): pass", "lambda made: 1"):
        assert len(banned_names(f'"""One of those found."""\n{text}\n')) == 1, text
    words = {path: banned_names(path.read_text(encoding="utf-8")) for path in sources(*PRODUCTION, "tests")}
    assert {path.relative_to(ROOT): names for path, names in words.items() if names} == {}


# bound at module level to a list, dictionary or set, unless in capitals (a constant by agreement); or global
MUTABLE = re.compile(r"^(?![A-Z\d_]+\b)(\w+)(?:: .+)?(?: = \w+)* = [\[{]|^ +global (\w+)$", re.MULTILINE)


def test_no_hidden_state_and_the_check_sees_it() -> None:
    text = "cache = {}\nown: dict[str, int] = {}\nLIMITS = [1]\ndef f():\n    global seen\n    inner = []\n"
    assert ["".join(names) for names in MUTABLE.findall(text)] == ["cache", "own", "seen"]
    for path in sources("runner", "harness", "suites", "studies"):
        assert MUTABLE.findall(path.read_text(encoding="utf-8")) == [], path


RUNNER = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources("runner")]
SLOW = ("torch", "numpy", "pandas", "scipy", "matplotlib", "rich", "plotly", "jinja2", "psutil")
SUITES = """
from harness.schema import Mode, Setting
for mode in (Mode.TRAINING, Mode.INFERENCE):
    setting = Setting(mode=mode, device_type="cpu", scale="full")
    for name in ("huggingface", "timm_models", "tiny_gpt", "ops"):
        suite = importlib.import_module(f"suites.{name}")
        suite.cases(setting)
        if hasattr(suite, "case_for"):
            suite.case_for("X", setting)
"""
PROGRAMS = {
    "runner": (
        f"for name in {RUNNER!r}: importlib.import_module(name.removesuffix('.__init__'))",
        ("torch",),
    ),
    "reports": (
        "from runner.reports import discover; import runner.reports.console; discover()",
        ("matplotlib", "pandas", "numpy", "scipy", "rich.table", "tabulate", "torch"),
    ),
    "pytest": ("import torchduet.pytest_plugin", (*SLOW, "runner", "harness")),
    "metrics": ("from harness.metrics import declared; assert len(declared().metrics) > 70", ("torch",)),
    "suites": (SUITES, ("torch", "timm", "transformers", "numpy")),
    "studies": (
        "from studies.__main__ import main; main(['implementations', '--help'])",
        ("torch", "scipy", "matplotlib", "rich"),
    ),
    "help": ("from runner.cli.main import main; main(['--help'])", SLOW),
    "list": ("from runner.cli.main import main; main(['--list', '--inference', '-k', 'MLP'])", SLOW),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_must_answer_at_once_imports_no_slow_library(name: str) -> None:
    """At once: by what is imported. A time would tell how busy the machine is."""
    program, unwanted = PROGRAMS[name]
    checked = (
        f"import importlib, sys\ntry:\n{textwrap.indent(program, '    ')}\nexcept SystemExit: pass\n"
        f"assert not set({unwanted!r}) & set(sys.modules), set({unwanted!r}) & set(sys.modules)\n"
        f"assert {unwanted != SLOW} or len(sys.modules) < {MOST_MODULES}, len(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", checked], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


# -- rooms -----------------------------------------------------------------------
ROOMS = ("runner", "harness", "suites", "studies", "torchduet")


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Of each module, those that it imports anywhere, but for type checkers alone."""
    graph = grimp.build_graph(*ROOMS, exclude_type_checking_imports=True)
    return {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def circles(imports: Mapping[str, Collection[str]]) -> list[set[str]]:
    """Sets of modules that import each other, directly or through others."""
    reached = {module: set(names) for module, names in imports.items()}
    for through in imports:
        for modules in reached.values():
            if through in modules:
                modules.update(reached[through])
    inside = {module: {m for m in reached[module] if module in reached[m]} for module in imports}
    return [set(circle) for circle in {frozenset(circle) for circle in inside.values() if circle}]


def test_the_check_for_circles_sees_them() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": []}) == [{"a", "b", "c"}]
    assert circles({"a": ["b", "c"], "b": ["c"], "c": []}) == []


def test_no_modules_import_each_other_in_a_circle(imports: dict[str, set[str]]) -> None:
    assert [sorted(circle) for circle in circles(imports)] == []


def test_nobody_imports_another_folders_private_files(imports: dict[str, set[str]]) -> None:
    private = [
        (module, other)
        for module, names in imports.items()
        for other in names
        if other.rpartition(".")[2].startswith("_") and module.rpartition(".")[0] != other.rpartition(".")[0]
    ]
    assert private == []


MOST_FILES = 12
PLUGINS = (
    *("harness/backends", "harness/metrics", "runner/cli/actions", "runner/runs/why/causes"),
)  # one file for each; what they share is elsewhere


def test_a_folder_has_a_dozen_files_at_most() -> None:
    counts = Counter(
        str(path.parent.relative_to(ROOT))
        for path in sources("runner", "harness", "studies")
        if path.name != "__init__.py"
    )
    assert {folder for folder, count in counts.items() if count > MOST_FILES} <= set(PLUGINS)


LINES = ROOT / "tests" / "data" / "lines.json"
SLACK = 100  # a commit that removes more lowers the ceiling
TEMPLATES = (".js", ".css", ".html", ".j2", ".toml")


def tracked() -> list[Path]:
    """Every file that git knows, of a checkout; of an unpacked archive every file."""
    command = [shutil.which("git") or "git", "ls-files"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.splitlines()]


def counted_lines() -> dict[str, int]:
    """Lines of the product, with templates and tables, which Python could be moved into, and of the tests."""
    lines: Counter[str] = Counter()
    for path in tracked():
        place = path.relative_to(ROOT).parts[0]
        if path.suffix == ".py" and path.is_file():
            kind = "tests" if place == "tests" else "product"
        elif path.suffix in TEMPLATES and place not in ("tests", "results") and path.is_file():
            kind = "product"
        else:
            continue
        lines[kind] += len(path.read_text(encoding="utf-8").splitlines())
    return dict(lines)


def test_the_lines_are_at_most_the_ceiling() -> None:
    """The ceiling only falls. An issue that names a sum raises it once, by this sum."""
    lines = counted_lines()
    if os.environ.get("UPDATE_GOLDEN"):
        LINES.write_text(f"{json.dumps(dict(sorted(lines.items())), indent=2)}\n", encoding="utf-8")
    ceiling = json.loads(LINES.read_text(encoding="utf-8"))
    assert {kind: count for kind, count in lines.items() if count > ceiling[kind]} == {}
    assert {kind: count for kind, count in lines.items() if count < ceiling[kind] - SLACK} == {}, "lower it"


def test_a_clone_is_small() -> None:
    """Records are packed (``gzip``), and what is derived from them is not kept."""
    sizes = {path: path.stat().st_size for path in tracked() if path.is_file()}
    plain = [str(path) for path in sizes if path.parts[-1] in ("records.jsonl", "run.json")]
    assert plain == []
    assert sum(sizes.values()) < 30e6
