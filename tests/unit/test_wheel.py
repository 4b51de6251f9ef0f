"""One package in site-packages, or a checkout: a user may have a ``runner`` or ``harness`` beside it."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import setup
from tests.command_line import ran

ROOT = Path(__file__).parents[2]
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
        ("from harness import devices", "from torchduet.harness import devices"),
        ("import torch, harness.worker", "import torch, torchduet.harness.worker"),
        ("import harness.worker as w", "import torchduet.harness.worker as w"),
        ("from harness_of_others import x", None),
        ("from torchduet.names import x", None),
        ("run(['-m', 'harness.worker'])", "run(['-m', 'torchduet.harness.worker'])"),
        ("é = f'suites.{name}'", "é = f'torchduet.suites.{name}'"),
        ("x = 'harness.probes.toy:make'", "x = 'torchduet.harness.probes.toy:make'"),
        ("own = not name.startswith('harness.')", "own = not name.startswith('torchduet.harness.')"),
        ("path = 'runner.py'", None),
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


def test_no_file_imports_a_package_that_is_elsewhere(site: Path) -> None:
    may = re.compile(rf"\b(from|import)\b.*\b({'|'.join(setup.INNER)})\b")
    for path in (path for path in site.rglob("*.py") if may.search(path.read_text(encoding="utf-8"))):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            assert not {name.partition(".")[0] for name in names} & set(setup.INNER), path


def test_the_command_starts_beside_packages_of_the_same_names(site: Path, project: Path) -> None:
    assert "matmul" in python(site, project, "-m", "torchduet", "--list", "--suites=ops", "--inference")


def test_import_torchduet_leaves_their_names_to_the_user(site: Path, project: Path) -> None:
    program = f"import torchduet\nfrom torchduet import Protocol, compare, load\n{OWN}"
    python(site, project, "-c", program)


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
    module = "runner.plan.environments.code_folder"
    python(site, tmp_path, "-c", program.format(f"from torchduet.{module}"))
    assert [path.name for path in (tmp_path / "code").iterdir()] == ["torchduet"]
    (tmp_path / "checkout").mkdir()
    python(ROOT, tmp_path / "checkout", "-c", program.format(f"from {module}"))
    copied = sorted(path.name for path in (tmp_path / "checkout" / "code").iterdir())
    assert copied == ["harness", "runner", "suites"]


def test_a_worker_of_another_environment_finds_the_program_and_nothing_beside_it(
    site: Path, tmp_path: Path
) -> None:
    program = (
        "from torchduet.runner.plan.interpreter import worker_command, worker_environment as e\n"
        "print(worker_command()[-1], e(1)['PYTHONPATH'])"
    )
    module, path = python(site, tmp_path, "-c", program).split()
    assert module == "torchduet.harness.worker"
    folder = Path(path.split(os.pathsep)[0])
    assert [one.name for one in folder.iterdir()] == ["torchduet"]
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
    assert last.startswith(
        f"ImportError: torchduet needs its own package '{name}', but Python finds {tmp_path}"
    )


def test_the_command_says_so_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "runner.py").write_text("x = 1\n")
    done = in_checkout(tmp_path, "import sys; from torchduet.__main__ import main; sys.exit(main())")
    assert done.returncode == 2
    assert done.stderr.startswith("error: torchduet needs its own package 'runner', but Python finds")
    assert len(done.stderr.splitlines()) == 1
