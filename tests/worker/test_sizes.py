"""With dynamic shapes a step runs several batches."""

import pytest
import torch
from torch import nn

from harness.loading.sizes import batches
from harness.precision import precision
from harness.schema import CompilerOptions, Mode
from harness.timing.step import Variant, replica
from harness.worker.session import Session
from harness.workload import Workload
from tests.factories import make_job

CPU = torch.device("cpu")
DYNAMIC = CompilerOptions(dynamic_batch=True)


class Seen(nn.Module):
    """Remembers the batches that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.batches: list[int] = []

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.batches.append(len(values))
        return values * self.weight


def variant(batch: int, options: CompilerOptions, *, training: bool) -> Variant:
    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        assert len(output) == len(target)
        return (output - target).square().sum()

    work = Workload(module=Seen(), args=(torch.randn(batch, 4),), target=torch.zeros(batch, 4), loss=loss)
    program = replica(work, CPU, None, training=training, options=options)
    return Variant(program, precision("float32", "cpu"), CPU)


@pytest.mark.parametrize("training", [True, False])
def test_the_models_own_batch_comes_last(training: bool) -> None:
    one = variant(8, DYNAMIC, training=training)
    assert batches(one.program) == (4, 6, 8)
    _, output = one.step()
    assert one.program.module.batches == [4, 6, 8]
    assert len(output) == 8


def test_gradients_are_those_of_the_models_own_batch() -> None:
    plain, dynamic = (variant(8, options, training=True) for options in (CompilerOptions(), DYNAMIC))
    torch.manual_seed(0)
    for one in (plain, dynamic):
        one.program.args[0].copy_(torch.arange(32.0).reshape(8, 4))
    dynamic.use(dynamic.program.forward())  # the smaller inputs are cut from the larger
    for one in (plain, dynamic):
        one.step()
    gradients = [next(one.program.module.parameters()).grad for one in (plain, dynamic)]
    assert gradients[0] is not None
    assert gradients[1] is not None
    assert torch.equal(gradients[0], gradients[1])


@pytest.mark.parametrize(("batch", "sizes"), [(1, (1,)), (2, (2,)), (3, (2, 3)), (4, (2, 3, 4))])
def test_a_small_batch_has_few_sizes_and_none_of_one(batch: int, sizes: tuple[int, ...]) -> None:
    assert batches(variant(batch, DYNAMIC, training=False).program) == sizes


def test_the_record_has_the_batch_that_was_built() -> None:
    """Not the one that was asked for: a suite may take no notice of it."""
    job = make_job(mode=Mode.INFERENCE, batch_size=16)
    built = Workload(module=Seen(), args=(torch.randn(4, 4),))
    facts, _ = Session(job, lambda _: None, lambda _: built).open()
    assert facts.batch_size == 4
