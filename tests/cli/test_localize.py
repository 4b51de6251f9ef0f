"""``--localize`` through the real command line: the record, the report, and the script of the fault."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import TOYS, records, runner

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


@pytest.mark.slow
def test_a_planted_fault_is_localized_and_its_script_shows_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(COMPILER)
    words = ("--inference", "-dcpu", "-t1", "--accuracy", "--localize", f"--suites={TOYS}", "--only=linear")
    out = tmp_path / "out"
    done = runner(
        *words,
        "--format=md",
        "--compilers=mine.py:wrong_gelu",
        f"--output-dir={out}",
        cwd=tmp_path,
        timeout=600,
    )
    (record,) = records(out)
    assert record["status"] == "fail_accuracy", done.stderr
    where = record["parity"]["where"]
    assert (where["stage"], where["module"], where["module_class"]) == ("code generation", "1", "GELU")
    script = out / where["repro"]
    shown = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert shown.returncode == 1, shown.stderr
    assert "fail_accuracy" in shown.stdout
    assert "goes wrong in code generation (mine.wrong_gelu), in 1 (GELU)" in (out / "report.md").read_text()
