"""``--ddp``: two processes of one job, and each way to lose one, through the real command line."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import records, runner
from tests.cli.instant_runs import processes_in

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.unused = nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(2, 2)

    def forward(self, x):
        return self.norm(self.first(x)).relu()

def make():
    return Model(), torch.randn(4, 8)
"""
COMPILERS = """
import torch

def without_exchange(module):
    return torch.compile(module.module, backend="eager")

def raises_in_one_rank(graph, inputs):
    if torch.distributed.get_rank():
        raise ValueError("not in this rank")
    return graph.forward
"""
NAMES = ("without_exchange", "raises_in_one_rank")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "models.py").write_text(MODEL, encoding="utf-8")
    (folder / "compilers.py").write_text(COMPILERS, encoding="utf-8")
    compilers = ",".join(["aot_eager", *(f"compilers.py:{name}" for name in NAMES)])
    words = ["--model=models.py:make", "--training", "--ddp=2", f"--compilers={compilers}", "-dcpu", "-n2"]
    done = runner(*words, "--threads=1", "--processes=1", f"--output-dir={folder / 'run'}", cwd=folder)
    return folder, done.stdout + done.stderr


def record_of(run: tuple[Path, str], name: str) -> dict[str, Any]:
    (record,) = (r for r in records(run[0] / "run") if r["candidate"] == name)
    return record


def test_a_candidate_passes_against_one_process_over_the_data_of_both(run: tuple[Path, str]) -> None:
    record = record_of(run, "aot_eager")
    assert record["status"] == "pass", run[1]
    assert record["job"]["protocol"]["ddp"] == 2
    assert record["parity"]["other_data"] == ["inputs", "weights"]
    assert len(record["samples"]["baseline_s"]) == 2
    parameters = 8 * 6 + 6 + 6 + 6 + 2 * 2 + 2
    assert record["metrics"]["candidate_exchanged_bytes"] == 4 * parameters
    assert record["metrics"]["graph_breaks"] >= 1


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("without_exchange", "fail_accuracy", "rank 1 has other gradients than rank 0 after a step: "),
        ("raises_in_one_rank", "fail_to_run", "ValueError: not in this rank"),
    ],
)
def test_a_rank_that_goes_its_own_way_ends_the_candidate(
    run: tuple[Path, str], name: str, status: str, says: str
) -> None:
    record = record_of(run, f"compilers.{name}")
    assert record["status"] == status, run[1]
    assert says in record["failure"]["message"]


def test_nothing_is_left_running(run: tuple[Path, str]) -> None:
    assert processes_in(run[0]) == []


def test_the_table_says_that_times_on_few_cpus_say_little(run: tuple[Path, str]) -> None:
    cpus = record_of(run, "aot_eager")["environment"]["cpus_usable"]
    said = "these processes wait for each other's CPUs" in " ".join(run[1].split())
    assert said == (cpus <= 2)
