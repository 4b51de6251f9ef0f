"""docs/compare.ipynb, executed as its cells are: each in turn, its last value shown; and the own models."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from examples import own_models
from harness.schema import Protocol, Status
from tests.factories import Patch, sampled
from torchduet import Result, compare

NOTEBOOK = Path(__file__).parents[2] / "docs" / "compare.ipynb"


def code_cells() -> list[dict[str, Any]]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def executed(source: str, names: dict[str, Any]) -> Any:
    """Runs a cell; the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, "exec"), names)  # noqa: S102 - our own file
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)  # noqa: S307


@pytest.mark.long
def test_the_notebooks_code_runs(tmp_path: Path, monkeypatch: Patch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = [executed("".join(cell["source"]), names) for cell in code_cells()]
    results = [value for value in shown if isinstance(value, Result)]
    assert [len(result) for result in results] == [2, 3, 1]
    assert all("<table>" in result._repr_html_() for result in results)
    statuses = {record.candidate: record.status.value for result in results for record in result.records}
    assert statuses == {
        "inductor": "pass",
        "eager": "pass",
        "counts_operations": "pass",
        "traced": "pass",
        "returns_it_as_it_is": "not_compiled",
        "has_no_kernel": "fail_to_run",
    }
    assert not list(tmp_path.iterdir())


def test_it_was_executed_in_order_and_shows_tables_and_pictures() -> None:
    code = code_cells()
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    html = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    assert sum("data:image/png;base64," in text for text in html) == 2
    assert not re.search(r"/(home|root|work|tmp)/", json.dumps(outputs))


# -- examples/own_models.py -----------------------------------------------------------------------
PAGE = NOTEBOOK.parents[1] / "examples" / "README.md"


@pytest.mark.parametrize("name", sampled(4, own_models.MODELS))
def test_every_kind_is_measured(name: str) -> None:
    torch.manual_seed(1)
    model, inputs, *_ = getattr(own_models, name)()
    (record,) = compare(
        model, inputs, compilers=["eager"], mode="inference", protocol=Protocol(performance=False)
    ).records
    assert record.status is Status.PASS, record.failure


def test_the_page_has_a_line_for_each_kind_and_step() -> None:
    lines = [line.split(" | ")[:2] for line in PAGE.read_text(encoding="utf-8").splitlines()]
    steps = ("training", "inference")
    asked = [[f"| {name}", step] for name in own_models.MODELS for step in steps]
    assert [line for line in lines if line[-1] in steps] == asked
