"""The table of a check's figures that a worker writes, read as a report reads it."""

import csv
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness.parity.check import COLUMNS
from harness.program import Compiled, Program
from harness.schema import Case, Job, Mode, Protocol, Status
from harness.worker.session import Session
from harness.workload import Workload
from runner.store.figures import figures_file, read_figures
from tests.factories import make_job, make_record


def build(_: Case) -> Workload:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return Workload(module=module, args=(torch.randn(32, 8),), loss=lambda output, _: output.square().mean())


def wrong(program: Program) -> Compiled:
    """Loss and gradients are 2 % too large; outputs are right."""
    step = program.forward()

    def forward(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        loss, output = step(*given)
        return loss * 1.02, output

    return Compiled(forward=forward, region="forward+loss", compiler_calls=lambda: 1)


def test_every_tensor_and_call_has_its_figures(tmp_path: Path) -> None:
    protocol = Protocol(performance=False)
    job: Job = make_job("small", mode=Mode.TRAINING, candidates=("wrong",), protocol=protocol)
    session = Session(job, lambda _: None, build, {"wrong": wrong})
    session.open()
    case = tmp_path / "cases" / job.key
    case.mkdir(parents=True)
    status, *_ = session.prepare("wrong", case / figures_file("wrong"))
    assert status is Status.FAIL_ACCURACY
    with (case / figures_file("wrong")).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert {row["call"] for row in rows} == {"1", "4"}  # the others repeat these
    outcomes = {row["tensor"]: row["outcome"] for row in rows if row["call"] == "1"}
    assert outcomes.pop("output") == "pass"
    assert set(outcomes.values()) == {"fail"}
    ((_, tensors),) = read_figures(tmp_path, [make_record(job, "wrong")]).items()
    assert [one.tensor for one in tensors][-2:] == ["output", "loss"]
    off = {one.tensor: one.candidate or 0.0 for one in tensors}
    assert 0.0199 < off["gradient.0.weight"] < 0.0201
    assert off["output"] < 1e-6


def test_a_table_that_cannot_be_written_costs_no_verdict(tmp_path: Path) -> None:
    protocol = Protocol(performance=False)
    job = make_job("small", mode=Mode.TRAINING, candidates=("wrong",), protocol=protocol)
    session = Session(job, lambda _: None, build, {"wrong": wrong})
    session.open()
    assert session.prepare("wrong", tmp_path / "missing" / "x.csv")[0] is Status.FAIL_ACCURACY
