"""The references of ``--ddp``: one process that computes what the averaged gradients of all ranks must be."""

from typing import Any

import torch
from torch import nn

from harness.parity.data import Data, placed
from harness.schema import Protocol
from harness.timing.workbench import Workbench
from harness.worker.ranks.variants import Bench
from harness.workload import Workload
from tests.factories import make_job
from tests.worker.planted import CPU


class Model(nn.Module):
    """With a normalization, whose buffers each rank changes, and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 6), nn.BatchNorm1d(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal: torch.Tensor = self.norm(self.first(x))
        return normal * torch.rand(6)


def bench(ranks: int, rank: int = 0, **protocol: Any) -> Workbench:
    job = make_job(candidates=("eager",), protocol=Protocol(ddp=ranks, threads=1, **protocol))
    torch.manual_seed(0)
    workload = Workload(
        module=Model(),
        args=(torch.randn(4, 8),),
        target=torch.randn(4, 6),
        loss=lambda output, target: (output - target).square().mean(),
    )
    return Bench(job, CPU, workload, ranks=ranks, rank=rank) if ranks else Workbench(job, CPU, workload)


def results_of(workbench: Workbench, share: Any = None, *, exact: bool = False) -> dict[str, torch.Tensor]:
    variant = workbench.variant(exact=exact)
    if share is not None:
        for tensor, value in zip(variant.program.args, share[0], strict=True):
            tensor.data.copy_(value)
        variant.program.target.copy_(share[2])
        variant.remember()
    return workbench.run(variant)


def test_each_rank_has_inputs_of_its_own_and_all_ranks_the_same_inputs_of_all() -> None:
    programs = [bench(3, rank).variant().program for rank in range(3)]
    for rank, program in enumerate(programs):
        assert program.args is program.shares[rank][0]
        for ours, first in zip(program.shares, programs[0].shares, strict=True):
            torch.testing.assert_close(ours[0][0], first[0][0], rtol=0, atol=0)
    inputs = [share[0][0] for share in programs[0].shares]
    assert not any(torch.equal(inputs[a], inputs[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


def test_labels_of_two_classes_are_each_ranks_own_and_change_on_other_data() -> None:
    job = make_job(candidates=("eager",), protocol=Protocol(ddp=2, threads=1))
    labels = torch.tensor([0, 1, 1, 0, 0, 0, 1, 0])
    loss = nn.functional.cross_entropy
    workload = Workload(module=nn.Linear(4, 2), args=(torch.randn(8, 4),), target=labels, loss=loss)
    variant = Bench(job, CPU, workload, ranks=2).variant()
    first, second = (share[2] for share in variant.program.shares)
    ours, theirs = first.clone(), second.clone()
    assert not torch.equal(ours, theirs)
    with placed(variant, Data(inputs=True)):
        assert not torch.equal(first, ours)
        assert not torch.equal(second, theirs)


def test_the_reference_averages_the_gradients_of_all_ranks_and_keeps_the_rest_of_rank_0() -> None:
    together = results_of(bench(2))
    shares = bench(2).variant().program.shares
    first, second = (results_of(bench(0), share) for share in shares)
    for name, tensor in together.items():
        expected = (first[name] + second[name]) / 2 if name.startswith("gradient.") else first[name]
        torch.testing.assert_close(tensor, expected, rtol=1e-6, atol=1e-7, msg=name)
    assert not torch.equal(first["gradient.first.weight"], second["gradient.first.weight"])
    assert not torch.equal(first["buffer.norm.running_mean"], second["buffer.norm.running_mean"])


def test_fp64_has_the_same_inputs() -> None:
    wide, narrow = results_of(bench(2), exact=True), results_of(bench(2))
    assert wide["gradient.first.weight"].dtype == torch.float64
    torch.testing.assert_close(wide["loss"].float(), narrow["loss"], rtol=1e-4, atol=1e-5)


def test_the_optimizer_steps_once_with_the_average() -> None:
    averaged = results_of(bench(2))["gradient.first.weight"]
    momentum = results_of(bench(2, optimizer="sgd"))["optimizer.first.weight.momentum_buffer"]
    torch.testing.assert_close(momentum, averaged, rtol=1e-6, atol=1e-7)
