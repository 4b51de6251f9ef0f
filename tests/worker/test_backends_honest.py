"""A candidate that did nothing does not look like 1.00x, and one that is inexact on purpose is not failed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness.backends import load_backend
from harness.counters import counting_graphs
from harness.schema import Mode, Status
from harness.workload import Workload
from tests.factories import known
from tests.worker.planted import Of, Trial, Verdict, changing, judged, mean_of, trial, with_fault

# Dynamo looks at every tensor's gradient, and means nothing by it
pytestmark = [
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
]


class LeftToEager(nn.Linear):
    """A layer that Dynamo does not capture at all."""

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


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
    assert calls(name, LeftToEager(4, 4), mode) == 0


@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING])
def test_a_model_captured_in_part_is_compiled(mode: Mode) -> None:
    partly = Of(lambda x, first, left: left(first(x)), nn.Linear(4, 4), LeftToEager(4, 4))
    assert calls("aot_eager", partly, mode) >= 1


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


def approximate(change: Callable[[torch.Tensor], torch.Tensor]) -> Verdict:
    """Of a compiler that is inexact on purpose, and changes outputs so."""
    claims: dict[str, Any] = {"notes": ("first",), "late_notes": lambda: ("late",)}
    work = Workload(module=nn.Linear(8, 8), args=(torch.randn(4, 8),))
    backend = with_fault(changing(change), approximate=True, **claims)
    return judged(backend, lambda: work, Mode.INFERENCE)


def test_an_approximate_candidate_is_measured_and_not_judged() -> None:
    status, parity, notes = approximate(lambda x: x * 1.01)
    assert status is Status.APPROXIMATE
    assert parity.failed == 1
    worst = known(parity.worst)
    assert worst.candidate_rmse == pytest.approx(0.01 * worst.scale, rel=0.01)
    assert notes == ("first", "late")


@pytest.mark.parametrize("change", [lambda x: x * float("nan"), lambda x: x * 3.0, lambda x: x[:, :4]])
def test_what_is_no_answer_at_all_fails_an_approximate_one_too(
    change: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    assert approximate(change)[0] is Status.FAIL_ACCURACY
