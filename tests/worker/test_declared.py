"""A metric's one file: what it declares is found in every report; what is recorded is declared."""

import csv
import json
import sys
from collections.abc import Iterator
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness import metrics
from harness.declared import GROUPS, Metric, joined
from harness.schema import Protocol
from runner.analysis import columns
from runner.reports import render_all
from runner.reports.pages import panels
from runner.store.record_file import opened
from tests.factories import Capture, Patch
from torchduet import compare

ROOT = Path(__file__).parents[2]
FILE = """
from contextlib import contextmanager

from harness.declared import CANDIDATE, SIDES, Column, Metric

WHEN = "step"
METRICS = (
    Metric(
        "answer_j",
        "J",
        "forty-two joules",
        digits=2,
        sides=SIDES,
        columns=(Column("answer\\nJ", CANDIDATE),),
    ),
    Metric(
        "answers_per_s",
        "J/s",
        "in each second of the median step",
        sides=(CANDIDATE,),
        derive=lambda seen: seen.per_s("candidate_answer_j"),
    ),
)


@contextmanager
def observe(device, numbers):
    yield
    numbers["answer_j"] = 42.123
"""
CACHES = (metrics.declared, columns.columns, panels._columns)


@pytest.fixture
def dropped_in(tmp_path: Path, monkeypatch: Patch) -> Iterator[None]:
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "answer.py").write_text(FILE, encoding="utf-8")
    monkeypatch.setattr(metrics, "__path__", [*metrics.__path__, str(folder)])
    for cached in CACHES:
        cached.cache_clear()
    yield
    sys.modules.pop("harness.metrics.answer", None)
    for cached in CACHES:
        cached.cache_clear()


@pytest.mark.usefixtures("dropped_in")
@pytest.mark.slow
def test_a_file_that_is_dropped_in_is_enough() -> None:
    protocol = Protocol(repeat=6, min_sample_s=0.0)
    result = compare(nn.Linear(4, 4), torch.ones(2, 4), compilers=["aot_eager"], protocol=protocol)
    (record,) = result.records
    assert record.metrics["candidate_answer_j"] == record.metrics["baseline_answer_j"] == 42.123
    files = render_all(result.summary)
    report = files["report.md"].decode()
    (header,) = [line for line in report.splitlines() if line.startswith("| model")]
    (row,) = [line for line in report.splitlines() if line.startswith("| Linear")]
    cells = dict(zip(*([cell.strip() for cell in line.split("|")] for line in (header, row)), strict=True))
    assert cells["answer J"] == "42"
    assert "answer" in result.table(width=300)
    (name,) = [name for name in files if name.endswith("_performance.csv")]
    (line,) = csv.DictReader(files[name].decode().splitlines())
    assert (line["baseline_answer_j"], line["candidate_answer_j"]) == ("42.123", "42.123")
    assert float(line["candidate_answers_per_s"]) > 42
    page = files["report.html"].decode()
    assert '"header":"answer J"' in page
    (comparison,) = json.loads(files["summary.json"])["comparisons"]
    assert comparison["candidate_answers_per_s"] > 42
    assert comparison["candidate_answer_j"] == 42.123
    (shown,) = result.summary.comparisons
    assert "42 J" in dict(panels.of_group(shown, "other")).values()


def test_a_broken_file_costs_its_numbers_only(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    (tmp_path / "shattered.py").write_text("raise ImportError('no such library')", encoding="utf-8")
    monkeypatch.setattr(metrics, "__path__", [*metrics.__path__, str(tmp_path)])
    metrics.declared.cache_clear()
    assert "flops_per_step" in metrics.declared().by_name
    assert "no metric shattered: ImportError: no such library" in capsys.readouterr().out
    metrics.declared.cache_clear()


def test_what_committed_records_hold_is_declared() -> None:
    names: set[str] = set()
    for path in (ROOT / "results").rglob("records.jsonl*"):
        with opened(path) as file:
            records = [*map(json.loads, file)]
        for record in records:
            if isinstance(record.get("metrics"), dict) and "job" in record:
                names |= record["metrics"].keys()
    assert len(names) > 40
    assert names - metrics.declared().by_name.keys() == set()


@pytest.mark.parametrize("metric", metrics.declared().metrics, ids=lambda metric: str(metric.name))
def test_a_declaration_is_whole(metric: Metric) -> None:
    assert metric.meaning
    assert metric.group in GROUPS
    assert metric.over_batches in ("last", "sum", "min", "max", "union")
    known = metrics.declared().by_name
    for column in metric.columns:
        assert column.side + metric.name in metric.names
        assert not column.or_else or column.or_else in known


def test_batches_are_joined_as_declared() -> None:
    cases: tuple[tuple[str, tuple[Any, ...], object], ...] = (
        ("sum", (1, 2.5, 3), 6.5),
        ("sum", (1, None, 3), None),
        ("min", (3, 1, 2), 1),
        ("max", (3, 1, 2), 3),
        ("union", ("a; b", "", "b; c"), "a; b; c"),
        ("last", (1, "two", None), None),
    )
    for how, values, expected in cases:
        assert reduce(partial(joined, how), values) == expected
