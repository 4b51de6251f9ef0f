"""``--localize`` through the real command line, of a planted fault; what ``--why`` cannot explain."""

import json
import sys
from pathlib import Path

import pytest

from harness.worker.localize.script import NOT_RUN, NOT_SHOWN, SHOWN
from tests.cli.command import TOYS, records, refusal, run_into
from tests.command_line import ran

pytestmark = pytest.mark.slow

COMPILER = '''
import torch

def wrong_gelu(graph, example_inputs):
    """Every GELU is 5 % too large."""
    for node in list(graph.graph.nodes):
        if "gelu" in str(node.target) and node.op == "call_function":
            with graph.graph.inserting_after(node):
                wrong = graph.graph.call_function(torch.mul, (node, 1.05))
            node.replace_all_uses_with(wrong, delete_user_cb=lambda user, keep=wrong: user is not keep)
    graph.recompile()
    return graph.forward
'''


NET = """
import torch

def make():
    layers = torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4)
    return torch.nn.Sequential(*layers), torch.randn(64, 8)
"""
WITHOUT_FAULT = COMPILER.replace("1.05", "1.0")
BROKEN = "def wrong_gelu(graph, example_inputs):\n    raise ValueError('no')\n"


def test_a_planted_fault_is_localized_and_its_script_shows_it_and_its_absence(tmp_path: Path) -> None:
    compiler, out = tmp_path / "mine.py", tmp_path / "out"
    compiler.write_text(COMPILER)
    (tmp_path / "net.py").write_text(NET)
    words = ("--inference", "-dcpu", "-t1", "--accuracy", "--localize", "--model=net.py:make", "--format=md")
    run_into(out, *words, "--compilers=mine.py:wrong_gelu", cwd=tmp_path, code=1)
    (record,) = records(out)
    assert record["status"] == "fail_accuracy"
    where = record["parity"]["where"]
    assert (where["stage"], where["module"], where["module_class"]) == ("code generation", "1", "GELU")
    assert "goes wrong in code generation (mine.wrong_gelu), in 1 (GELU)" in (out / "report.md").read_text()
    theirs = "torch._dynamo.utils.same (tol=0.001, with fp64): "
    for text, code, said, of_field in (
        (COMPILER, SHOWN, "mine.wrong_gelu on 1: fail_accuracy\n", f"{theirs}differs\n"),
        (WITHOUT_FAULT, NOT_SHOWN, "mine.wrong_gelu on 1: pass\n", f"{theirs}same\n"),
        (BROKEN, NOT_RUN, "", ""),
    ):
        compiler.write_text(text)
        shown = ran(sys.executable, out / where["repro"])
        assert shown.returncode == code, shown.stderr
        assert shown.stdout.startswith(said)
        assert shown.stdout.endswith(of_field)


# -- --why -----------------------------------------------------------------------------
WHY = ("--why", "--inference", "-dcpu")


def test_a_model_that_fails_has_no_explanation(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def make():\n    raise RuntimeError('no weights')\n")
    out = tmp_path / "out"
    words = (*WHY, "-n6", "--model=mine.py:make", "--compilers=aot_eager")
    done = run_into(out, *words, cwd=tmp_path, code=1)
    assert "has no times (model_fail_to_load)" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert json.loads((out / "why.json").read_text())["explanations"] == []


def test_a_setting_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    words = (*WHY, f"--suites={TOYS}", "--only=linear", "--compilers=aot_eager[dynamo.recompile_limi=1]")
    assert "the closest are recompile_limit" in refusal(*words, cwd=tmp_path)
    assert not list(tmp_path.iterdir())
