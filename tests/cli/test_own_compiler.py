"""``--compilers file.py:function``: a compiler of the user's own, through the real command line."""

import os
import shlex
from pathlib import Path

import pytest

from tests.cli.command import records, refusal, run_into, runner, statuses
from tests.factories import Patch

MODEL = """
import torch

@torch._dynamo.register_backend
def named_in_the_models_file(graph, example_inputs):
    return graph.forward

def make():
    return torch.nn.Linear(8, 4), torch.randn(4, 8)
"""

BACKEND = '''
"""Compilers for tests."""

import torch

def as_it_is(graph, example_inputs):
    """Runs the captured graph as it is.

    More about it."""
    print("as_it_is was called with", len(graph.graph.nodes), "nodes")
    return graph.forward

def traced(module):
    return torch.jit.trace(module, torch.randn(4, 8))

def in_place(module):
    module.compile(backend="eager")
    return module

def idle(module):
    return module

def wrong(graph, example_inputs):
    return lambda *args: tuple(2 * out for out in graph.forward(*args))

def marked(*given):
    return given[0].forward

marked.compiles = "graph"
'''

WORDS = ("--model=mine.py:make", "--inference", "-n6", "--processes=1", "-dcpu", "--format=csv")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODEL, encoding="utf-8")
    (tmp_path / "my_backend.py").write_text(BACKEND, encoding="utf-8")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(3)\n", encoding="utf-8")
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "backends.py").write_text(BACKEND, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("start", ["--no-fork-server", "--isolate"])  # --isolate: forked workers
def test_functions_are_compilers_and_are_proved_to_be_called(here: Path, start: str) -> None:
    folder = here / "run"
    chosen = ["as_it_is", "traced", "in_place", "idle", "wrong", "marked"]
    names = ",".join(f"my_backend.py:{name}" for name in chosen)
    names += ",my_package.backends:as_it_is,eager"
    run_into(folder, *WORDS, f"--compilers={names}", start, cwd=here, code=1)
    assert statuses(folder) == {
        ("make", "my_backend.as_it_is"): "pass",
        ("make", "my_backend.traced"): "pass",
        ("make", "my_backend.in_place"): "pass",
        ("make", "my_backend.idle"): "not_compiled",
        ("make", "my_backend.wrong"): "fail_accuracy",
        ("make", "my_backend.marked"): "pass",
        ("make", "backends.as_it_is"): "pass",
        ("make", "eager"): "pass",
    }
    by_name = {record["candidate"]: record for record in records(folder)}
    assert by_name["my_backend.as_it_is"]["metrics"]["unique_graphs"] == 1
    kind = "fresh" if start == "--no-fork-server" else "forked"
    assert by_name["my_backend.as_it_is"]["environment"]["worker"] == kind
    (log,) = folder.glob("cases/*/output.log")
    assert "as_it_is was called with" in log.read_text()
    command = shlex.split(by_name["my_backend.as_it_is"]["reproduce"])
    assert f"--compilers={here / 'my_backend.py'}:as_it_is" in command
    assert len(list(folder.glob("my_backend.as_it_is_mine_*performance.csv"))) == 1


@pytest.mark.slow
def test_the_reproduce_command_measures_the_same_again(here: Path) -> None:
    words = (*WORDS, "--compilers=my_backend.py:as_it_is", "--backend=named_in_the_models_file")
    run_into(here / "one", *words, cwd=here)
    for record in records(here / "one"):
        program, *flags = shlex.split(record["reproduce"])
        assert program == "torchduet"  # the current folder is not the clone
        folder = here / f"again-{record['candidate']}"
        run_into(folder, *flags, "--format=csv")  # from another folder
        assert statuses(folder) == {("make", record["candidate"]): "pass"}
    printed = runner(*words, "--print-run-commands", cwd=here)
    assert f"{here / 'my_backend.py'}:as_it_is,named_in_the_models_file" in printed.stdout


BAD = [
    ("--compilers=nowhere.py:fn", "there is no file 'nowhere.py'"),
    ("--compilers=leaves.py:f", "leaves.py cannot be loaded (SystemExit: sys.exit(3) was called)"),
    (
        "--backend=named_in_the_models_fil",
        "registered with torch.compile; did you mean named_in_the_models_file?",
    ),
]


@pytest.mark.parametrize(("flag", "says"), BAD)
@pytest.mark.series
def test_bad_input_is_one_sentence(here: Path, flag: str, says: str) -> None:
    sentence = refusal(*WORDS, flag, f"--output-dir={here / 'run'}", cwd=here)
    assert sentence.startswith(f"error: {flag.partition('=')[0]}: ")
    assert says in sentence
    assert not (here / "run").exists()


@pytest.mark.slow
def test_the_listing_has_them_and_those_of_packages(here: Path, monkeypatch: Patch) -> None:
    installed = here / "installed"
    package = installed / "faster-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: faster\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[torch_dynamo_backends]\nfaster = faster_backend:compile\n")
    (installed / "faster_backend.py").write_text("def compile(graph, inputs):\n    return graph.forward\n")
    path = os.pathsep.join((str(installed), os.environ.get("PYTHONPATH", "")))
    monkeypatch.setenv("PYTHONPATH", path)
    words = ("--list-compilers", "-dcpu", "--model=mine.py:make", "--compilers=my_backend.py:as_it_is")
    listed = runner(*words, cwd=here)
    assert listed.returncode == 0, listed.stderr
    lines = {line.split()[1]: line for line in listed.stdout.splitlines()}
    assert lines["my_backend.as_it_is"].endswith("yes  Runs the captured graph as it is.")
    assert "yes  The backend 'faster' that is registered" in lines["faster"]
    assert "yes" in lines["named_in_the_models_file"]
    run_into(here / "run", *WORDS, "--accuracy", "--backend=faster", cwd=here)
    assert statuses(here / "run") == {("make", "faster"): "pass"}
