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


def test_a_wrong_tensor_inside_an_object_fails_and_equal_outputs_pass() -> None:
    status, parity, notes = with_output(lambda output: output)
    assert (status, notes, parity.tensors) == (Status.PASS, (), 2)
    worst = failing(with_output(lambda output: {**output, "cache": Cache(output["logits"] + 1.01)}))
    assert worst.name == "output.cache.layers.0.keys"


def test_outputs_that_share_their_memory_are_a_note() -> None:
    module = Of(lambda x, line: (line(x), line(x).clone()), nn.Linear(8, 8))
    work = Workload(module=module, args=(torch.randn(4, 8),))
    twice = with_fault(changing(lambda output: (output[0],) * 2))
    status, _, (note,) = judged(twice, lambda: work, Mode.INFERENCE)
    assert status is Status.PASS
    assert note.endswith("unlike eager's: a change of one changes both")


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
    ("kind", "mode", "tensor", "words"),
    [
        ("alias of an input", Mode.INFERENCE, "output", "shares its memory with input.0.0"),
        ("alias of a weight", Mode.INFERENCE, "output", "shares its memory with parameter.0.weight"),
        ("overwritten output", Mode.INFERENCE, "output", "a later call overwrites an earlier call's output"),
        ("changed target", Mode.TRAINING, "", ""),
        ("smaller batch", Mode.INFERENCE, "@", ""),
        ("smaller batch", Mode.TRAINING, "@", ""),
    ],
)
@pytest.mark.series
def test_an_output_in_the_memory_of_something_else_fails_and_a_wrong_smaller_batch(
    kind: str, mode: Mode, tensor: str, words: str
) -> None:
    worst = failing(planted(kind, mode, options=SIZES if tensor == "@" else None))
    assert tensor in worst.name
    assert words in known(worst.failure)


def test_smaller_batches_that_are_right_pass() -> None:
    session = opened(lambda: workload("mlp"), compilers={"right": with_fault(right)}, options=SIZES)
    status, parity, *_ = session.prepare("right")
    assert status is Status.PASS
    assert known(parity).tensors > 8
