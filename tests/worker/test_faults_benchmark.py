"""benchmarks/faults.py on one small model: it plants, it judges, and its table counts."""

from dataclasses import replace
from functools import partial
from typing import cast

import pytest
import torch

from benchmarks.faults import Planted, bits_of, cell, tables
from benchmarks.planted_faults import CHANGES, KINDS, LATE_CALLS, SIZED
from harness.schema import Mode
from tests.factories import Patch, sampled
from tests.worker.planted import case_of

# Dynamo looks at every tensor's gradient, and means nothing by it
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")
mlp = partial(case_of, "tiny_gpt", "MLP_addition")
EVERYWHERE = ("stale input", "baked weight", "every third step", "swapped heads")


@pytest.mark.parametrize(
    ("mode", "dtype"), sampled(3, (Mode.TRAINING, Mode.INFERENCE), ("float32", "bfloat16"))
)
@pytest.mark.series
def test_structural_faults_are_found_and_the_graph_without_a_fault_passes(mode: Mode, dtype: str) -> None:
    outcomes = list(cell(mlp(mode), dtype, (0.02,), EVERYWHERE))
    assert [(outcome.kind, outcome.status) for outcome in outcomes[:1]] == [("", "pass")]
    planted = {outcome.kind: outcome for outcome in outcomes[1:]}
    assert set(planted) == set(EVERYWHERE)
    assert all(outcome.ours for outcome in planted.values())
    assert not planted["stale input"].field
    assert not planted["baked weight"].field
    assert planted["stale input"].found_by == "call 4, on other inputs and weights"


def test_faults_of_memory_and_of_late_calls_are_found() -> None:
    kinds = ("alias of a weight", "overwritten output", *LATE_CALLS)
    by_kind = {outcome.kind: outcome for outcome in cell(mlp(Mode.INFERENCE), "float32", (), kinds)}
    assert set(by_kind) == {"", *kinds}
    assert [kind for kind, outcome in by_kind.items() if outcome.ours] == [kind for kind in by_kind if kind]
    assert {by_kind[kind].found_by for kind in LATE_CALLS} == {"the rounds"}


def test_bits_tell_results_apart_and_names_too() -> None:
    ones, more = torch.ones(3), torch.ones(3) + 2e-7
    assert bits_of({"output": ones}) == bits_of({"output": ones.clone()})
    others: list[dict[str, torch.Tensor]] = [
        *({"output": more}, {"loss": ones}, {"output": torch.ones(3, dtype=torch.float64)}, {})
    ]
    assert len({bits_of({"output": ones}), *map(bits_of, others)}) == 5


@pytest.mark.slow
def test_a_fault_that_changes_no_result_is_not_planted(monkeypatch: Patch) -> None:
    """In the middle of attention's scores is a first token's only one, which softmax makes 1."""
    monkeypatch.setattr("benchmarks.planted_faults.PLACE", 0.5)
    monkeypatch.setitem(cast("dict[str, object]", CHANGES), "every fifth call", SIZED["one element"])
    gpt = case_of("tiny_gpt", "GPT_150k", Mode.INFERENCE)
    assert [o.kind for o in cell(gpt, "float32", (0.1,), ("one element", "every fifth call"))] == [""]


def outcome(kind: str, status: str, *, field: bool = False, size: float = 0.01) -> Planted:
    of_cell = Planted(model="m", mode="training", dtype="float32", status=status)
    return replace(of_cell, kind=kind, size=size, field=field)


def rows_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]


def test_the_table_counts_what_each_rule_found_and_what_was_a_false_alarm() -> None:
    scales = (outcome("scale", "pass"), outcome("scale", "fail_accuracy", field=True))
    others = (("baked weight", "RuntimeError"), ("", "pass"), ("untouched inductor", "fail_accuracy"))
    text = tables([*scales, *(outcome(*row) for row in others)])
    rows = rows_of(text)
    assert ["scale", "1 %", "1 / 2", "1 / 2"] in rows
    assert ["baked weight", "", "1 / 1", "0 / 1"] in rows
    assert ["untouched inductor", "fail_accuracy", "1"] in rows
    assert ["the graph without a fault", "pass", "1"] in rows
    assert ["all", "", "2 / 3", "1 / 3"] in rows
    assert text.endswith("3 faults in 1 cells of 1 models.")
    assert len(set(KINDS)) == len(KINDS)


def test_what_cannot_be_judged_is_not_found_and_its_cell_is_left_out() -> None:
    unjudged = [replace(outcome(kind, "cannot_judge", field=True), model="other") for kind in ("", "scale")]
    text = tables([outcome("", "pass"), outcome("scale", "cannot_judge"), *unjudged])
    rows = rows_of(text)
    assert ["scale", "1 %", "0 / 1", "0 / 1"] in rows
    assert ["the graph without a fault", "fails by the field's rule", "1"] in rows
    assert text.endswith("1 faults in 1 cells of 1 models. Left out: other training float32.")
