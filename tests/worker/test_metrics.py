"""Metrics round a compilation or a step; above all, that peak memory is exact."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness.metrics import observing
from harness.metrics.memory import peak_of
from harness.schema import Mode
from harness.workload import Workload
from tests.worker.planted import CPU, Trial, trial

MIB = 1 << 20


def step_peak(work: Callable[[], object]) -> Any:
    with observing("step", CPU) as numbers:
        work()
    return numbers["step_peak_bytes"]


def block(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8)


def test_what_was_compiled_inside_is_counted() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(torch.sin, backend="aot_eager")
    with observing("compile", CPU) as numbers:
        compiled(torch.ones(2))
    assert numbers["unique_graphs"] == 1


def test_an_error_inside_comes_out() -> None:
    with pytest.raises(RuntimeError, match="inside"), observing("step", CPU):
        raise RuntimeError("inside")
    assert step_peak(lambda: block(1)) == MIB  # and the next observation is as good as new


# -- memory ---------------------------------------------------------------------------------------


def test_the_peak_is_of_what_lives_at_once() -> None:
    assert step_peak(lambda: None) == 0
    assert step_peak(lambda: block(3)) == 3 * MIB

    def work() -> None:
        first = block(4)
        del first
        second, third = block(2), block(3)
        del second
        fourth = block(1)
        del third, fourth

    assert step_peak(work) == 5 * MIB


def test_what_was_there_before_does_not_count_and_its_release_hides_nothing() -> None:
    before = [block(8)]

    def work() -> None:
        before.clear()
        block(2)

    assert step_peak(work) == 2 * MIB


def test_a_steps_peak_is_the_sum_of_what_it_keeps() -> None:
    """Inference of a chain of ReLUs: the input of each and its output, never more."""
    work = Workload(module=nn.Sequential(*[nn.ReLU() for _ in range(5)]), args=(torch.ones(MIB // 4),))
    subject = Trial(workload=work, dtype="float32", mode=Mode.INFERENCE).variant()
    assert step_peak(subject.step) == 2 * MIB


def test_copies_of_a_model_have_the_same_peak() -> None:
    subject = trial("conv")
    peaks = []
    for variant in (subject.variant() for _ in range(3)):
        variant.step()
        variant.release()
        peaks.append(step_peak(variant.step))
        variant.release()
    assert len(set(peaks)) == 1
    parameters = sum(p.numel() * 4 for p in subject.workload.module.parameters())
    assert peaks[0] > parameters  # the gradients alone are as much


def event(size: int, address: int) -> dict[str, int]:
    return {"Bytes": size, "Addr": address}


@pytest.mark.parametrize(
    ("events", "peak"),
    [
        ([], 0),
        ([event(5, 1)], 5),
        ([event(5, 1), event(-5, 1), event(3, 1)], 5),
        ([event(5, 1), event(7, 2), event(-5, 1), event(6, 3)], 13),
        ([event(-9, 4), event(5, 1)], 5),  # allocated before we looked
        ([event(5, 1), event(-9, 4), event(2, 2)], 7),
        ([event(5, 1), event(-5, 1), event(-5, 1), event(2, 2)], 5),
    ],
)
def test_the_peak_of_events(events: list[dict[str, int]], peak: int) -> None:
    assert peak_of(events) == peak
