"""What a release says: its number and date, the versions it was tested with, and the Python of make."""

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import setup
from harness.loading.toml_file import read_toml
from harness.schema import Scalar
from runner.analysis.caveats import NEWEST, untested
from tests.command_line import executable, ran
from tests.unit.test_changes import write
from tests.versions.environments import PINNED, TABLE

ROOT = Path(__file__).parents[2]
VERSION = read_toml(ROOT / "pyproject.toml")["project"]["version"]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_changelog_citation_and_the_example_of_the_action_have_this_version() -> None:
    headings = re.findall(r"^## (.+)$", text("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+, \d{4}-\d{2}-\d{2}", heading) for heading in headings[1:])
    citation = dict(re.findall(r"^(version|date-released): (\S+)$", text("CITATION.cff"), re.MULTILINE))
    assert (headings[1], citation["version"]) == (f"{VERSION}, {citation['date-released']}", VERSION)
    assert re.findall(r"torchduet@v(\S+)", text("docs/CI.md")) == [VERSION]


# -- tested versions ------------------------------------------------------------
def pins(package: str) -> list[Version]:
    requirements = [Requirement(text) for row in TABLE for text in row.requirements if row.name != PINNED]
    return [
        Version(next(iter(requirement.specifier)).version)
        for requirement in requirements
        if requirement.name == package and str(requirement.specifier).startswith("==")
    ]


@pytest.mark.parametrize("package", NEWEST)
def test_the_newest_tested_is_what_make_versions_tests(package: str) -> None:
    assert Version(NEWEST[package]) == max(pins(package))


@pytest.mark.parametrize(
    "environment",
    [
        *({}, {"torch": None, "torchvision": None}, {"torch": "2.0.1+cu117"}),
        {"torch": f"{NEWEST['torch']}+cu132", "torchvision": NEWEST["torchvision"]},
        {"torch": "a build of my own"},
    ],
)
def test_nothing_is_said_of_what_was_tested_or_is_older(environment: Mapping[str, Scalar]) -> None:
    assert untested([environment]) is None


@pytest.mark.parametrize("version", ["3.1.0", "3.1.0+cu140", "3.1.0.dev20270101+cpu", "3.1.0a0+git1234"])
def test_a_newer_torch_is_named(version: str) -> None:
    sentence = untested([{"torch": "2.11.0"}, {"torch": version}])
    assert sentence == (
        "torch 3.1.0: newer than every version that torchduet was tested with "
        f"(up to torch {NEWEST['torch']})."
    )


# -- the Python of make ------------------------------------------------------------
NAMES = ("python3", "python3.10", "python3.11", "python3.12", "python3.13")


def machine(folder: Path, pythons: dict[str, str]) -> dict[str, str]:
    """A PATH on which these interpreters, by name, are of these versions; any other one is broken."""
    for name in NAMES:
        version = pythons.get(name, "broken")
        numbers = tuple(int(part) for part in version.split(".")) if version != "broken" else ()
        program = f"import sys\nassert {numbers}\nsys.version_info = (*{numbers}, 0)\nexec(sys.argv[2])\n"
        executable(folder / name, f"#!{sys.executable}\n{program}")
    return {"PATH": f"{folder}{os.pathsep}/usr/bin:/bin", "HOME": str(folder)}


def picked(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return ran(ROOT / ".ci" / "python", *words, env=environment)


@pytest.mark.parametrize(
    ("pythons", "expected"),
    [
        ({"python3": "3.9", "python3.12": "3.12"}, "python3.12"),
        ({"python3": "3.99", "python3.10": "3.10"}, "python3.10"),
    ],
)
def test_the_first_that_works_is_taken(tmp_path: Path, pythons: dict[str, str], expected: str) -> None:
    done = picked(machine(tmp_path, pythons))
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, expected, "")


def test_without_a_python_that_works_one_sentence_says_so(tmp_path: Path) -> None:
    done = picked(machine(tmp_path, {"python3": "3.9"}))
    assert ((done.returncode, done.stdout), done.stderr.count("\n")) == ((2, ""), 1)
    assert "make PYTHON=" in done.stderr
    environment = machine(tmp_path, {"python3": "3.9", "python3.11": "3.11"})
    done = picked(environment, "python3")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("these work: python3.11\n")


def test_its_versions_are_those_of_make_versions() -> None:
    minors = sorted({int(row.python.partition(".")[2]) for row in TABLE})
    assert f"oldest={minors[0]} newest={minors[-1]} " in text(".ci/python")


# -- the wheel, and a checkout -----------------------------------------------------------------
MODULES = {"harness", "harness.worker", "harness.probes.toy", "suites", "runner", "runner.cli.main"}
OWN = """
import harness, runner, suites
assert harness.WHO == runner.WHO == suites.WHO == "the user"
"""


def python(site: Path, folder: Path, *words: str) -> str:
    """What a program prints."""
    environment = {**os.environ, "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(site / "cache")}
    done = ran(sys.executable, *words, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel puts into site-packages."""
    folder = tmp_path_factory.mktemp("site-packages")
    for name in (setup.OUTER, *setup.INNER):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    setup.nest(folder)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's folder with packages that have the names of ours."""
    for name in setup.INNER:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("WHO = 'the user'\n")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from harness.schema import Case", "from torchduet.harness.schema import Case"),
        ("import torch, harness.worker", "import torch, torchduet.harness.worker"),
        ("from harness_of_others import x", None),
        ("run(['-m', 'harness.worker'])", "run(['-m', 'torchduet.harness.worker'])"),
        ("é = f'suites.{name}'", "é = f'torchduet.suites.{name}'"),
        ("x = 'harness.probes.toy:make'", "x = 'torchduet.harness.probes.toy:make'"),
        ("names = ('harness', 'runner')", None),
        ("text = 'see harness.worker'", None),
        ("# from harness.schema import Case", None),
    ],
)
def test_names_of_modules_are_changed_and_no_other_words(source: str, expected: str | None) -> None:
    assert setup.renamed(source.encode(), MODULES).decode() == (expected or source)


def test_all_is_in_one_package(site: Path) -> None:
    assert [path.name for path in site.iterdir() if path.name != "cache"] == ["torchduet"]
    assert (site / "torchduet" / "py.typed").is_file()


@pytest.mark.slow
def test_no_file_imports_a_package_that_is_elsewhere(site: Path) -> None:
    may = re.compile(rf"\b(from|import)\b.*\b({'|'.join(setup.INNER)})\b")
    for path in (path for path in site.rglob("*.py") if may.search(path.read_text(encoding="utf-8"))):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            assert not {name.partition(".")[0] for name in names} & set(setup.INNER), path


def test_the_command_starts_beside_packages_of_the_same_names(site: Path, project: Path) -> None:
    assert "matmul" in python(site, project, "-m", "torchduet", "--list", "--suites=ops", "--inference")


@pytest.mark.slow
def test_import_torchduet_leaves_their_names_to_the_user(site: Path, project: Path) -> None:
    program = f"import torchduet\nfrom torchduet import Protocol, compare, load\n{OWN}"
    python(site, project, "-c", program)


@pytest.mark.slow
def test_elsewhere_commands_are_those_of_the_installed_program(site: Path, tmp_path: Path) -> None:
    torchduet = functools.partial(python, site, tmp_path, "-m", "torchduet")
    commands = torchduet("--training", "--only=MLP_addition", "--print-run-commands", "-dcpu")
    assert commands.startswith("torchduet --suites=tiny_gpt --training ")
    text = torchduet("--help")
    assert text.startswith("usage: torchduet ")
    assert "torchduet --suites=tiny_gpt --training --bfloat16" in text
    assert "runner.py" not in text
    write(tmp_path / "logs" / "run", [], command=[])
    torchduet("--history", "logs")
    assert "torchduet --history" in (tmp_path / "logs" / "index.html").read_text()


def test_a_suite_imports_our_harness_by_its_short_name(site: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import harness\nfrom harness.schema import Case\n"
        "def cases(setting):\n"
        "    name = f'{harness.__name__}+{Case.__module__}'\n"
        "    one = Case(suite=__file__, name=name, mode=setting.mode, batch_size=1, published_batch_size=1)\n"
        "    return (one,)\n"
    )
    listed = python(site, tmp_path, "-m", "torchduet", "--list", "--suites=mine.py", "--inference")
    assert "torchduet.harness+torchduet.harness.schema" in listed  # the same modules, not copies


def test_a_node_of_a_cluster_gets_the_code_and_nothing_else(site: Path, tmp_path: Path) -> None:
    program = "from pathlib import Path; {} import copy_code; copy_code(Path('code'))"
    module = "runner.plan.interpreter"
    python(site, tmp_path, "-c", program.format(f"from torchduet.{module}"))
    assert [path.name for path in (tmp_path / "code").iterdir()] == ["torchduet"]
    (tmp_path / "checkout").mkdir()
    python(ROOT, tmp_path / "checkout", "-c", program.format(f"from {module}"))
    copied = sorted(path.name for path in (tmp_path / "checkout" / "code").iterdir())
    assert copied == ["harness", "runner", "suites"]


def test_a_worker_elsewhere_finds_the_program_and_nothing_beside_it(site: Path, tmp_path: Path) -> None:
    program = (
        "from torchduet.runner.plan.interpreter import worker_command, worker_environment as e\n"
        "print(worker_command()[-1], e(1)['PYTHONPATH'])"
    )
    module, path = python(site, tmp_path, "-c", program).split()
    assert module == "torchduet.harness.worker"
    folder = Path(path.split(os.pathsep)[0])
    assert [path.name for path in folder.iterdir()] == ["torchduet"]
    assert (folder / "torchduet").resolve() == (site / "torchduet").resolve()


# -- a checkout ------------------------------------------------------------
def in_checkout(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    return ran(sys.executable, "-c", program, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize("own", ["runner.py", "harness.py", "harness/__init__.py", "runner/__init__.py"])
def test_a_module_of_the_same_name_is_named_in_one_sentence(tmp_path: Path, own: str) -> None:
    (tmp_path / own).parent.mkdir(exist_ok=True)
    (tmp_path / own).write_text("x = 1\n")
    done = in_checkout(tmp_path, "from torchduet import compare")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    name = own.partition("/")[0].removesuffix(".py")
    assert f"torchduet needs its own package '{name}', but Python finds {tmp_path}" in last


def test_the_command_says_so_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "runner.py").write_text("x = 1\n")
    done = in_checkout(tmp_path, "import sys; from torchduet.__main__ import main; sys.exit(main())")
    assert done.returncode == 2
    assert done.stderr.startswith("error: torchduet needs its own package 'runner', but Python finds")
    assert len(done.stderr.splitlines()) == 1
