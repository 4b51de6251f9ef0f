"""The form of outputs: leaves that are no tensors, tensors inside objects, strides, memory."""

from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.planted_faults import Fault, compile_with
from harness.schema import CompilerOptions, Mode, Status
from harness.workload import Workload
from tests.factories import known
from tests.worker.planted import Of, Verdict, changing, failing, judged, opened, right, with_fault, workload

SIZES = CompilerOptions(dynamic_batch=True)
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")


class Cache:
    """Holds tensors, as a cache of keys and values does."""

    def __init__(self, keys: torch.Tensor) -> None:
        self.layers = [{"keys": keys}]
        self.length = 3


def several(x: torch.Tensor, line: nn.Linear) -> dict[str, Any]:
    logits = line(x)
    return {"logits": logits, "steps": 7, "name": "a", "none": None, "cache": Cache(logits + 1)}


def with_output(change: Any) -> Verdict:
    work = Workload(module=Of(several, nn.Linear(8, 8)), args=(torch.randn(4, 8),))
    return judged(with_fault(changing(change)), lambda: work, Mode.INFERENCE)


def test_outputs_that_are_equal_pass() -> None:
    status, parity, notes = with_output(lambda output: output)
    assert (status, notes) == (Status.PASS, ())
    assert parity.tensors == 2


def test_a_wrong_tensor_inside_an_object_fails() -> None:
    worst = failing(with_output(lambda output: {**output, "cache": Cache(output["logits"] + 1.01)}))
    assert worst.name == "output.cache.layers.0.keys"


def test_outputs_that_share_their_memory_are_a_note() -> None:
    def twice(x: torch.Tensor, line: nn.Linear) -> tuple[torch.Tensor, torch.Tensor]:
        y = line(x)
        return y, y.clone()

    work = Workload(module=Of(twice, nn.Linear(8, 8)), args=(torch.randn(4, 8),))
    status, _, notes = judged(
        with_fault(changing(lambda output: (output[0],) * 2)), lambda: work, Mode.INFERENCE
    )
    assert status is Status.PASS
    assert len(notes) == 1
    assert notes[0].endswith("unlike eager's: a change of one changes both")


def test_random_numbers_that_eager_does_not_draw_are_a_note() -> None:
    status, _, notes = with_output(lambda output: {**output, "logits": output["logits"] + 0 * torch.rand(1)})
    assert status is Status.PASS
    assert notes == ("random generators that a step draws from: torch's CPU generator; eager's: none",)


# -- planted: the values are right, and the memory is wrong ----------------------------------------------
def planted(kind: str, mode: Mode = Mode.INFERENCE, **protocol: Any) -> Verdict:
    fault = Fault()
    compilers = {"planted": compile_with(fault)}
    session = opened(lambda: workload("mlp"), mode, compilers=compilers, performance=False, **protocol)
    fault.kind = kind
    status, parity, _, notes = session.prepare("planted")
    assert fault.changed
    return status, known(parity), notes


@pytest.mark.slow
def test_other_strides_are_a_note_and_no_failure() -> None:
    status, _, notes = planted("changed strides")
    assert status is Status.PASS
    assert notes == ("output has strides (1, 32), eager's (8, 1)",)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("alias of an input", "shares its memory with input.0.0"),
        ("alias of a weight", "shares its memory with parameter.0.weight"),
        ("overwritten output", "a later call overwrites an earlier call's output"),
    ],
)
@pytest.mark.series
def test_an_output_in_the_memory_of_something_else_fails(kind: str, words: str) -> None:
    assert failing(planted(kind)).failure == words


@pytest.mark.slow
def test_a_changed_target_fails() -> None:
    verdict = planted("changed target", Mode.TRAINING)
    assert failing(verdict)
    assert verdict[1].found_by == "call 1"


@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING])
@pytest.mark.series
def test_what_is_wrong_for_smaller_batches_alone_fails(mode: Mode) -> None:
    assert "@" in failing(planted("smaller batch", mode, options=SIZES)).name


def test_smaller_batches_that_are_right_pass() -> None:
    session = opened(lambda: workload("mlp"), compilers={"right": with_fault(right)}, options=SIZES)
    status, parity, *_ = session.prepare("right")
    assert status is Status.PASS
    assert known(parity).tensors > 8
