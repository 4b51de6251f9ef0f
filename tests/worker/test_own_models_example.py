"""``examples/own_models.py``: each kind is measured, and ``examples/README.md`` has a line for it."""

from pathlib import Path

import pytest
import torch

from examples import own_models
from harness.schema import Protocol, Status
from torchduet import compare

PAGE = Path(__file__).parents[2] / "examples" / "README.md"


SAMPLE = own_models.MODELS[::4]  # of the quick tests


@pytest.mark.parametrize(
    "name", [n if n in SAMPLE else pytest.param(n, marks=pytest.mark.slow) for n in own_models.MODELS]
)
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
