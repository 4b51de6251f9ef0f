"""A candidate that did nothing does not look like 1.00x, and one that is inexact on purpose is not failed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness.backends import load_backend
from harness.counters import counting_graphs
from harness.program import Compiled, Program, forward_of
from harness.schema import Mode, Protocol, Status
from harness.worker.session import Session
from harness.workload import Workload
from tests.factories import make_job
from tests.worker.planted import Backend, Trial, backends, mean_of, silent, trial

# Dynamo looks at every tensor's gradient, and means nothing by it
pytestmark = [
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
]


class LeftToEager(nn.Module):
    """A model that Dynamo does not capture at all."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        return y


class PartlyLeft(LeftToEager):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = super().forward(self.first(x))
        return y


def calls(name: str, module: nn.Module, mode: Mode) -> int:
    work = Workload(module=module, args=(torch.ones(2, 4),), loss=mean_of)
    variant = Trial(workload=work, dtype="float32", mode=mode).variant()
    compiled = load_backend(name)(variant.program)
    variant.use(compiled.forward)
    variant.step()
    return compiled.compiler_calls()


@pytest.mark.parametrize("name", ["dynamo_eager", "aot_eager", "dynamo_ts", "aot_ts"])
@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING])
def test_a_model_left_to_eager_is_not_compiled_even_if_its_loss_is(name: str, mode: Mode) -> None:
    assert calls(name, LeftToEager(), mode) == 0


@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING])
def test_a_model_captured_in_part_is_compiled(mode: Mode) -> None:
    assert calls("aot_eager", PartlyLeft(), mode) >= 1


def test_a_graph_of_nothing_is_no_work() -> None:
    counted = counting_graphs()
    torch.compile(lambda x: x, backend="eager")(torch.ones(2))
    assert counted() == 0


def test_other_candidates_do_not_count() -> None:
    mine = trial("mlp", mode=Mode.INFERENCE)
    first, second = mine.variant(), mine.variant()
    idle = load_backend("dynamo_ts")(first.program)
    busy = load_backend("dynamo_ts")(second.program)
    second.use(busy.forward)
    second.step()
    assert (idle.compiler_calls(), busy.compiler_calls()) == (0, 1)


# -- in a session ---------------------------------------------------------------------------------


def prepared(backend: Backend, monkeypatch: pytest.MonkeyPatch, module: nn.Module | None = None) -> Any:
    """What a session says of that candidate in inference."""
    monkeypatch.setattr("harness.worker.session.load_backend", backends(planted=backend))
    job = make_job(mode=Mode.INFERENCE, candidates=("planted",), protocol=Protocol(threads=1))
    work = Workload(module=module or nn.Linear(8, 8), args=(torch.randn(4, 8),))
    session = Session(job, silent, lambda _: work)
    session.open()
    return session.prepare("planted")


def rounding(change: Callable[[torch.Tensor], torch.Tensor], *, approximate: bool) -> Backend:
    """A compiler whose output is eager's, changed."""

    def compile(program: Program) -> Compiled:  # noqa: A001 - as the real ones are called
        def forward(*args: Any, **kwargs: Any) -> torch.Tensor:
            return change(program.module(*args, **kwargs))

        return Compiled(
            forward=forward_of(forward, None),
            region="forward",
            compiler_calls=lambda: 1,
            approximate=approximate,
            notes=("first",),
            late_notes=lambda: ("late",),
        )

    return compile


def test_an_approximate_candidate_is_measured_and_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    status, found, _, notes = prepared(rounding(lambda x: x * 1.01, approximate=True), monkeypatch)
    assert status is Status.APPROXIMATE
    assert found.failed == 1
    assert found.worst.candidate_rmse == pytest.approx(0.01 * found.worst.scale, rel=0.01)
    assert notes == ("first", "late")


@pytest.mark.parametrize("change", [lambda x: x * float("nan"), lambda x: x * 3.0, lambda x: x[:, :4]])
def test_what_is_no_answer_at_all_fails_an_approximate_one_too(
    change: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prepared(rounding(change, approximate=True), monkeypatch)[0] is Status.FAIL_ACCURACY
