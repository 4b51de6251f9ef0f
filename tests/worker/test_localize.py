"""``--localize``: the stage of the compiler and the smallest submodule, of planted faults."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from harness.backends.shared.dynamo import compile_with_dynamo
from harness.program import Compiled, Program
from harness.protocol import BITWISE
from harness.schema import Case, Extras, Job, Mode, Protocol
from harness.worker.localize.search import called_inside, given_to, localize
from harness.workload import Workload
from runner.names import where_text
from tests.cli.test_localize import COMPILER
from tests.factories import make_job
from tests.worker.planted import changing, right_graph


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.steps = nn.ModuleList([nn.Linear(16, 16), nn.GELU()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        for step in self.steps:
            x = step(x)
        return x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.block = Block()
        self.last = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.block(self.first(x)))


def build(case: Case) -> Workload:
    target = torch.randint(0, 4, (64,))
    loss = nn.functional.cross_entropy
    return Workload(module=Net(), args=(torch.randn(64, 8),), target=target, loss=loss)


def job(mode: Mode = Mode.INFERENCE, optimizer: str = "none") -> Job:
    protocol = Protocol(threads=1, optimizer=optimizer)
    return make_job("net", mode=mode, candidates=("planted",), protocol=protocol)


def backend(factor: str = "1.05") -> Callable[[Program], Compiled]:
    space: dict[str, Any] = {}
    exec(COMPILER.replace("1.05", factor), space)  # noqa: S102 - as the user's own compiler
    return lambda program: compile_with_dynamo(program, space["wrong_gelu"])


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "optimizer"), [(Mode.TRAINING, "adamw"), (Mode.INFERENCE, "none")])
def test_the_smallest_submodule_that_fails_is_named(mode: Mode, optimizer: str) -> None:
    """Also one without parameters, where the step ends with an optimizer."""
    where = localize(job(mode, optimizer), "planted", build=build, compilers={"planted": backend()})
    assert (where.stage, where.compiler) == ("code generation", "planted")
    assert (where.module, where.module_class) == ("block.steps.1", "GELU")
    assert "off by 5 %" in where.why
    assert where.note == ""
    assert where.trials == 5  # first, block; inside the norm, the Linear and the GELU


@pytest.mark.parametrize(("factor", "module"), [("1.0000002", "block.steps.1"), ("1.0", "")])
def test_by_bits_a_rounding_is_localized_that_is_not_wrong(factor: str, module: str) -> None:
    by_bits = replace(job(), extras=Extras(localize=BITWISE))
    where = localize(by_bits, "planted", build=build, compilers={"planted": backend(factor)})
    assert where.bitwise
    assert where.module == module
    if module:
        assert re.fullmatch(r"output: [\d,]+ of 1,024 elements, by up to \d+ ULP", where.why)
        assert "elements, by up to" in where_text(where)
    else:
        assert where_text(where) == "in a fresh worker, planted has eager's bits"


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong", [("inductor", "aot_eager_decomp_partition", "aot_eager"), ("aot_eager",)], ids=len
)
def test_a_fault_of_an_earlier_stage_is_named_by_the_first_stage_that_has_it(wrong: tuple[str, ...]) -> None:
    """Also where the candidate is this stage."""
    compilers = {**dict.fromkeys(wrong, backend()), "dynamo_eager": right_graph}
    where = localize(job(), wrong[0], build=build, compilers=compilers)
    assert (where.stage, where.compiler, where.module) == ("AOTAutograd", "aot_eager", "block.steps.1")


@pytest.mark.slow
def test_a_fault_that_needs_the_whole_model_names_the_whole_model() -> None:
    """A compiler that is wrong where a graph has two products or more of another size."""

    def of_whole(program: Program) -> Compiled:
        compiled = right_graph(program)
        wrong = changing(lambda output: output * 1.05)(program, compiled.forward)
        return replace(compiled, forward=wrong) if hasattr(program.module, "first") else compiled

    where = localize(job(), "planted", build=build, compilers={"planted": of_whole})
    assert (where.stage, where.module, where.module_class) == ("code generation", "", "Net")


def test_what_does_not_fail_again_is_not_localized() -> None:
    where = localize(job(), "planted", build=build, compilers={"planted": right_graph})
    assert where.stage == ""
    assert where.note == "in a fresh worker, planted ends as pass"


def test_containers_give_their_contents_and_what_eager_does_not_call_has_no_inputs() -> None:
    work = build(job().case)
    work.module.unused = nn.Linear(3, 3)
    assert list(called_inside(work.module, "block")) == ["block.norm", "block.steps.0", "block.steps.1"]
    names = list(called_inside(work.module, ""))
    assert names == ["first", "block", "last", "unused"]
    given = given_to(work, names, job())
    assert given.keys() == {"first", "block", "last"}
    assert torch.equal(given["first"][0][0], work.args[0])
