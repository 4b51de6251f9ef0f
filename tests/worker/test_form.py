"""The form of outputs: leaves that are no tensors, tensors inside objects, strides, memory."""

from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.planted_faults import Fault, compile_with
from harness.program import Program
from harness.schema import CompilerOptions, Mode, Status
from harness.workload import Workload
from tests.worker.planted import Forward, Verdict, judged, opened, right, with_fault, workload

SIZES = CompilerOptions(dynamic_batch=True)
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")


class Cache:
    """Holds tensors, as a cache of keys and values does."""

    def __init__(self, keys: torch.Tensor) -> None:
        self.layers = [{"keys": keys}]
        self.length = 3


class Several(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        made = self.line(x)
        return {"logits": made, "steps": 7, "name": "a", "none": None, "cache": Cache(made + 1)}


def with_output(change: Any) -> Verdict:
    def fault(_: Program, forward: Forward) -> Forward:
        def run(*given: Any) -> tuple[Any, Any]:
            loss, output = forward(*given)
            return loss, change(output)

        return run

    work = Workload(module=Several(), args=(torch.randn(4, 8),))
    return judged(with_fault(fault), lambda: work, Mode.INFERENCE)


def test_outputs_that_are_equal_pass() -> None:
    status, parity, notes = with_output(lambda output: output)
    assert (status, notes) == (Status.PASS, ())
    assert parity.tensors == 2


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("steps", 8, "8 instead of 7"), ("steps", 7.0, "7.0 instead of 7"), ("name", "b", "'b' instead of 'a'")],
)
def test_another_number_or_text_fails(name: str, value: object, words: str) -> None:
    status, parity, _ = with_output(lambda output: {**output, name: value})
    assert status is Status.FAIL_ACCURACY
    assert parity.worst is not None
    assert (parity.worst.name, parity.worst.failure) == (f"output.{name}", words)


def test_a_wrong_tensor_inside_an_object_fails() -> None:
    status, parity, _ = with_output(lambda output: {**output, "cache": Cache(output["logits"] + 1.01)})
    assert status is Status.FAIL_ACCURACY
    assert parity.worst is not None
    assert parity.worst.name == "output.cache.layers.0.keys"


def test_random_numbers_that_eager_does_not_draw_are_a_note() -> None:
    status, _, notes = with_output(lambda output: {**output, "logits": output["logits"] + 0 * torch.rand(1)})
    assert status is Status.PASS
    assert notes == ("random generators that a step draws from: torch's CPU generator; eager's: none",)


# -- planted: the values are right, and the memory is wrong ----------------------------------------------


def planted(kind: str, name: str = "mlp", mode: Mode = Mode.INFERENCE, **protocol: Any) -> Verdict:
    fault = Fault()
    session = opened(
        lambda: workload(name),
        mode,
        compilers={"planted": compile_with(fault)},
        performance=False,
        **protocol,
    )
    fault.kind = kind
    status, parity, _, notes = session.prepare("planted")
    assert parity is not None
    assert fault.changed
    return status, parity, notes


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
def test_an_output_in_the_memory_of_something_else_fails(kind: str, words: str) -> None:
    status, parity, _ = planted(kind)
    assert status is Status.FAIL_ACCURACY
    assert parity.worst is not None
    assert parity.worst.failure == words


def test_a_changed_target_fails() -> None:
    status, parity, _ = planted("changed target", mode=Mode.TRAINING)
    assert status is Status.FAIL_ACCURACY
    assert parity.worst is not None
    names = {parity.worst.name, parity.found_by}
    assert parity.failed
    assert names & {"target", "loss", "call 1", "call 2", "call 3"}


@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING])
def test_what_is_wrong_for_smaller_batches_alone_fails(mode: Mode) -> None:
    status, parity, _ = planted("smaller batch", mode=mode, options=SIZES)
    assert status is Status.FAIL_ACCURACY
    assert parity.worst is not None
    assert "@" in parity.worst.name


def test_smaller_batches_that_are_right_pass() -> None:
    session = opened(lambda: workload("mlp"), compilers={"right": with_fault(right)}, options=SIZES)
    status, parity, *_ = session.prepare("right")
    assert status is Status.PASS
    assert parity is not None
    assert parity.tensors > 8
