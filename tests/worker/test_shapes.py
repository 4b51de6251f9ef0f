"""A stream of shapes in a worker, with toy models."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from harness.schema import Case, Mode, Status
from harness.worker.session import Session
from harness.workload import Workload
from tests.factories import make_job


class Net(torch.nn.Module):
    """``wrong``: a batch at which compiled code computes something else."""

    def __init__(self, wrong: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)
        self.wrong = wrong

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.linear(given).relu()
        if torch.compiler.is_compiling() and given.shape[0] == self.wrong:
            return made * 1.5
        return made


def session(stream: str, strategy: str, wrong: int = 0, candidate: str = "aot_eager") -> Session:
    torch._dynamo.reset()

    def build(case: Case) -> Workload:
        torch.manual_seed(0)
        return Workload(module=Net(wrong), args=(torch.randn(case.batch, 8),))

    plain = make_job(mode=Mode.INFERENCE, candidates=(candidate,))
    job = replace(
        plain,
        protocol=replace(plain.protocol, performance=False, start=strategy, threads=1),
        options=replace(plain.options, strategy=strategy),
        extras=replace(plain.extras, shapes=stream),
    )
    opened = Session(job, lambda _: None, build)
    opened.open()
    return opened


def test_past_the_limit_calls_run_eager_and_are_counted() -> None:
    sizes = ",".join(map(str, range(3, 15)))
    worker = session(f"batch={sizes},3", "static")
    status, parity, *_ = worker.prepare("aot_eager")
    assert status is Status.PASS, parity
    assert worker.stream is not None
    done = worker.stream.done
    assert done is not None
    assert done.sizes == (*range(3, 15), 3)
    assert done.compiled == tuple(range(8))
    assert done.eager == (8, 9, 10, 11)
    assert len(worker.first_calls_s["aot_eager"]) == 13


@pytest.mark.parametrize(
    ("strategy", "compiled"), [("automatic", (0, 1)), ("dynamic", (0,)), ("marked", (0,)), ("padded", (0, 2))]
)
def test_dynamic_shapes_compile_once_or_twice(strategy: str, compiled: tuple[int, ...]) -> None:
    worker = session("batch=3,4,5,6,7", strategy)
    status, *_ = worker.prepare("aot_eager")
    assert status is Status.PASS
    assert worker.stream is not None
    done = worker.stream.done
    assert done is not None
    assert (done.compiled, done.eager) == (compiled, ())


def test_a_size_that_computes_something_else_is_named() -> None:
    status, parity, *_ = session("batch=3,6,4", "static", wrong=6).prepare("aot_eager")
    assert status is Status.FAIL_ACCURACY
    assert parity is not None
    assert parity.worst is not None
    assert parity.worst.name == "batch=6: output"
