"""Faults that no step on the first data can show: stale inputs, baked weights, damage, every n-th call."""

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness.parity import data
from harness.parity.data import INPUTS, MOST, WEIGHTS, Data, change_tensors, placed
from harness.program import Compiled, Program, forward_of
from harness.schema import CompilerOptions, Mode, Status
from harness.timing.workbench import cloned
from harness.workload import Workload
from tests.factories import Capture, Patch, known, sampled
from tests.worker.planted import (
    Fault,
    Forward,
    Of,
    changing,
    drawn,
    failed,
    failing,
    inference,
    judged,
    opened,
    refusing,
    right,
    trial,
    with_fault,
    workload,
)

NAMES = ("mlp", "conv", "tokens")
MODES = (Mode.TRAINING, Mode.INFERENCE)
DTYPES = ("float32", "bfloat16", "amp")
OTHER = Data(weights=True, inputs=True)


def first_weight(program: Program) -> nn.Parameter:
    return next(p for p in program.module.parameters() if p.dim() > 1)


def stale_input(_: Program, forward: Forward) -> Forward:
    """A CUDA graph whose input is not refreshed."""
    kept: list[Any] = []

    def run(args: tuple[Any, ...], kwargs: Mapping[str, Any], target: Any) -> tuple[Any, Any]:
        if not kept:
            kept.append(tuple(arg.clone() for arg in args))
        return forward(kept[0], kwargs, target)

    return run


def baked_weight(program: Program, forward: Forward) -> Forward:
    """One weight became a constant."""
    weight = first_weight(program)
    kept = weight.detach().clone()

    def run(*given: Any) -> tuple[Any, Any]:
        now, weight.data = weight.data, kept
        result = forward(*given)
        weight.data = now
        return result

    return run


def damaging(act: Callable[[Program, tuple[Any, ...]], object]) -> Fault:
    """A kernel writes where it must not, and the next steps read it."""

    def plant(program: Program, forward: Forward) -> Forward:
        def run(args: tuple[Any, ...], kwargs: Mapping[str, Any], target: Any) -> tuple[Any, Any]:
            result = forward(args, kwargs, target)
            act(program, args)
            return result

        return run

    return plant


damaged_weight = damaging(lambda program, _: first_weight(program).data[0, 0].mul_(1.01))
damaged_input = damaging(lambda _, args: args[0].view(-1)[0].add_(1))


def skipped_buffer(program: Program, forward: Forward) -> Forward:
    """The second update of a buffer, and every later one, is lost."""
    called: list[bool] = []

    def run(*given: Any) -> tuple[Any, Any]:
        before = [buffer.clone() for buffer in program.module.buffers()]
        result = forward(*given)
        for buffer, was in zip(program.module.buffers(), before, strict=True):
            buffer.data.copy_(was if called else buffer)
        called.append(True)
        return result

    return run


@pytest.mark.parametrize(("name", "mode", "dtype"), sampled(7, NAMES, MODES, DTYPES))
def test_what_is_right_passes_on_other_data_and_says_how(name: str, mode: Mode, dtype: str) -> None:
    status, parity, notes = judged(with_fault(right), lambda: workload(name), mode, dtype)
    assert status is Status.PASS, parity
    assert (parity.steps, parity.other_data, parity.not_checked) == (6, (INPUTS, WEIGHTS), ())
    assert parity.found_by == ""
    assert notes == ()
    assert 0.0 < known(parity.resolution_median) <= known(parity.resolution_largest) < 1.0


@pytest.mark.parametrize("dtype", sampled(3, DTYPES))
@pytest.mark.slow
def test_a_buffer_that_is_not_updated_again_is_found_in_the_second_step(dtype: str) -> None:
    verdict = judged(with_fault(skipped_buffer), lambda: workload("conv"), dtype=dtype)
    assert failing(verdict).name.startswith("buffer.")
    assert verdict[1].found_by == "call 2"


@pytest.mark.parametrize(
    ("fault", "damaged"), [(damaged_weight, "parameter.0.weight"), (damaged_input, "input.0.0")]
)
def test_a_damage_is_found_by_itself(fault: Fault, damaged: str) -> None:
    """In bfloat16, no result shows that of the weight."""
    verdict = judged(with_fault(fault), lambda: workload("mlp"), Mode.INFERENCE, "bfloat16")
    assert failing(verdict).name == damaged
    assert verdict[1].found_by == "call 1"


class Counting(nn.Linear):
    """Counts its calls in a weight and in its second input, which no result shows."""

    def __init__(self) -> None:
        super().__init__(8, 8)
        self.calls = nn.Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        with torch.no_grad():
            self.calls.add_(1)
            count += 1
        return super().forward(x)


@pytest.mark.parametrize("wrong", [False, True])
def test_what_a_right_step_counts_in_weights_and_inputs_passes(*, wrong: bool) -> None:
    def plant(program: Program, forward: Forward) -> Forward:
        def run(*given: Any) -> tuple[Any, Any]:
            program.module.get_parameter("calls").data += float(wrong)
            return forward(*given)

        return run

    args = torch.randn(4, 8), torch.zeros(1)
    work = Workload(module=Counting(), args=args)
    status, parity, _ = judged(with_fault(plant), lambda: work, Mode.INFERENCE)
    assert status is (Status.FAIL_ACCURACY if wrong else Status.PASS), parity.worst
    assert parity.steps == 6


def test_a_crash_on_other_data_is_a_failure() -> None:
    calls = itertools.count(1)

    def crashing(output: torch.Tensor) -> torch.Tensor:
        return output if next(calls) < 5 else refusing(RuntimeError("the fifth call"))()

    failure = failed(lambda: judged(with_fault(changing(crashing)), lambda: workload("mlp")))
    assert (failure.status, failure.failure.phase) == (Status.FAIL_TO_RUN, "check")
    assert failure.failure.message == "the fifth call"


@pytest.mark.slow
def test_a_compiler_that_makes_weights_constants_is_checked_on_other_inputs() -> None:
    honest = with_fault(baked_weight, constant_weights=True)
    status, parity, _ = judged(honest, lambda: workload("mlp"), Mode.INFERENCE)
    assert (status, parity.other_data) == (Status.PASS, (INPUTS,))
    assert parity.not_checked == ("other weights: this compiler makes the weights constants",)
    stale = with_fault(stale_input, constant_weights=True)
    verdict = judged(stale, lambda: workload("mlp"), Mode.INFERENCE)
    assert failing(verdict)
    assert verdict[1].found_by == "call 4, on other inputs"


def picky(x: torch.Tensor, linear: nn.Linear) -> Any:
    """Takes the inputs of its first call only."""
    if not bool((x.sum(-1) > 0).all()):
        raise ValueError("rows must add up to more than zero")
    return linear(x)


def test_a_model_that_takes_no_other_data_is_checked_without_and_the_record_says_so() -> None:
    x = torch.eye(8)
    x[0] = torch.tensor([5.0, -4, 0, 0, 0, 0, 0, 0])
    work = Workload(module=Of(picky, nn.Linear(8, 8)), args=(x,))
    status, parity, _ = judged(with_fault(right), lambda: work, Mode.INFERENCE)
    assert (status, parity.steps, parity.other_data) == (Status.PASS, 3, ())
    (why,) = parity.not_checked
    assert why.startswith("other data: eager fails on other data (ValueError: rows must")


def test_what_is_nan_on_other_data_is_named() -> None:
    """Half of the weights are below zero there."""

    def rooted(x: torch.Tensor, linear: nn.Linear) -> torch.Tensor:
        output: torch.Tensor = linear(x) * linear.weight.sum(1).sqrt().prod()
        return output

    linear = nn.Linear(8, 8, bias=False)
    nn.init.ones_(linear.weight)
    work = Workload(module=Of(rooted, linear), args=(torch.rand(4, 8),))
    status, parity, _ = judged(with_fault(right), lambda: work, Mode.INFERENCE)
    assert (status, parity.steps) == (Status.PASS, 6)
    assert parity.not_checked == ("output on other data: eager's overflowed, or held NaN or infinities only",)


def test_other_data_that_fp64_does_not_take_is_judged_by_eager(capsys: Capture) -> None:
    x = torch.randn(8, 8)

    def single(given: torch.Tensor, linear: nn.Linear) -> torch.Tensor:
        if given.dtype is torch.float64 and not torch.equal(given.float(), x):
            raise RuntimeError("no such kernel")
        output: torch.Tensor = linear(given)
        return output

    work = Workload(module=Of(single, nn.Linear(8, 8)), args=(x,))
    status, parity, _ = judged(with_fault(right), lambda: work, Mode.INFERENCE)
    assert (status, parity.other_data) == (Status.PASS, (INPUTS, WEIGHTS))
    assert "no fp64 reference of other data: no such kernel" in capsys.readouterr().out


def test_a_compilation_for_other_data_is_reported() -> None:
    def compile(program: Program) -> Compiled:  # noqa: A001
        compiled = torch.compile(program.module, backend="eager")
        return Compiled(forward=forward_of(compiled, None), region="forward", compiler_calls=lambda: 1)

    torch._dynamo.reset()
    by_value = Of(lambda x, n: x * int(n[0]))
    work = Workload(module=by_value, args=(torch.randn(4, 8), torch.tensor([2, 7, 3])))
    status, _, (note,) = judged(compile, lambda: work, Mode.INFERENCE)
    assert status is Status.PASS
    assert note.startswith("compiled again for other data of the same shapes: ")


# -- the data -----------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["mlp", "conv", "tokens", "attention"])
def test_every_weight_changes_in_eager_and_in_fp64_alike_and_comes_back(name: str, dtype: str) -> None:
    subject = trial(name, dtype)
    values = []
    for variant in (subject.variant(), subject.variant(exact=True)):
        before = {n: p.clone() for n, p in variant.program.module.named_parameters()}
        with placed(variant, OTHER) as changed:
            assert changed == (INPUTS, WEIGHTS)
            now = {n: p.detach().double().clone() for n, p in variant.program.module.named_parameters()}
        assert all(torch.equal(p, before[n]) for n, p in variant.program.module.named_parameters())
        assert all(not torch.equal(now[n], before[n].double()) for n in now)
        values.append(now)
    assert all(torch.equal(values[0][n], values[1][n]) for n in values[0])


@pytest.mark.parametrize(
    "given",
    [
        torch.tensor([True, False, True, True]),
        torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]),
        torch.arange(8).expand(2, 8).clone(),
        torch.tensor([0, 3, 5, 9]),
        torch.tensor([0.0, float("-inf"), 0.0]),
        torch.zeros(3, 3),
        torch.tensor(3),
    ],
    ids=["booleans", "mask", "positions", "offsets", "float mask", "zeros", "integer"],
)
def test_masks_positions_and_offsets_stay(given: torch.Tensor) -> None:
    variant = inference(nn.Identity(), given.clone()).variant()
    with placed(variant, Data(inputs=True)) as changed:
        assert changed == ()
        assert torch.equal(variant.program.args[0], given)


def test_smaller_batches_are_of_the_first_data_again_and_no_longer_looked_at() -> None:
    """Also after an error of the model's code, which takes no other data: the rounds come next."""
    x = torch.randn(8, 4)
    given = list[torch.Tensor]()

    def forward(rows: torch.Tensor, linear: nn.Linear) -> Any:
        given.append(rows.clone())
        return linear(rows)

    def step_that_fails() -> None:
        with placed(variant, OTHER):
            variant.drive_with(observed=True)
            raise ValueError("no such data")

    variant = inference(Of(forward, nn.Linear(4, 4)), x).variant(options=CompilerOptions(dynamic_batch=True))
    with pytest.raises(ValueError, match="no such data"):
        step_that_fails()
    _, output = variant.step()
    assert all(map(torch.equal, given, (x[:4], x[:6], x)))
    assert variant.results(None, output, cloned).keys() == {"output"}


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_single_number_is_halved(shape: tuple[int, ...]) -> None:
    variant = inference(nn.Identity(), torch.full(shape, 3.0)).variant()
    with placed(variant, Data(inputs=True)):
        assert float(variant.program.args[0]) == 1.5


def test_labels_are_no_mask_and_no_positions() -> None:
    for labels in (torch.tensor([0, 1, 1, 0, 0]), torch.arange(5)):
        given = torch.ones(5, 2), labels.clone()
        assert change_tensors(given, 0, given[1])
        assert not torch.equal(given[1], labels)
        assert torch.equal(given[1].sort().values, labels.sort().values)


class Alike(nn.Linear):
    """Refuses weights of different sizes: it runs on the first and on other data, and on no neighbor."""

    def __init__(self) -> None:
        super().__init__(32, 32, bias=False)
        self.weight.data.sign_().div_(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.weight.abs().amax() > self.weight.abs().amin():
            raise ValueError("the sizes differ")
        return super().forward(x)


def test_a_model_that_refuses_neighbors_is_not_judged(tmp_path: Path, capsys: Capture) -> None:
    def work() -> Workload:
        return Workload(module=Alike(), args=(torch.randn(8, 32),))

    compilers = {"planted": with_fault(changing(lambda output: output * 1.001))}
    session = opened(work, Mode.INFERENCE, compilers=compilers)
    status, parity, *_ = session.prepare("planted", tmp_path / "figures.csv")
    assert status is Status.CANNOT_JUDGE
    why = "eager fails on neighbors of the data, where output would be looked at again"
    assert known(parity).unjudged == why
    assert "a run of eager on a neighbor of the data fails: the sizes differ" in capsys.readouterr().out
    rows = (tmp_path / "figures.csv").read_text().splitlines()[1:]
    assert {row.rpartition(",")[2] for row in rows} == {"not judged"}
    assert judged(with_fault(right), work, Mode.INFERENCE)[0] is Status.PASS


@pytest.mark.parametrize("shape", [(3, 5, 2, 2), (128, 64, 3, 3)])  # all elements, and some of a large weight
def test_a_copy_in_channels_last_order_has_the_same_neighbor(shape: tuple[int, int, int, int]) -> None:
    out, given, *kernel = shape
    module = nn.Conv2d(given, out, (kernel[0], kernel[1]), bias=False)
    plain = inference(module, torch.ones(1, given, 4, 4)).variant()
    other = inference(copy.deepcopy(module), torch.ones(1, given, 4, 4)).variant()
    other.program.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # of torch
    first, second = (next(variant.program.module.parameters()) for variant in (plain, other))
    before = first.detach().clone()
    data = Data(weights=True, neighbor=1)
    with placed(plain, data), placed(other, data):
        assert first.is_contiguous()
        assert not second.is_contiguous()
        assert torch.equal(first, second)
        assert len(first[first.abs() != before.abs()]) > 0.7 * min(before.numel(), MOST)
    assert torch.equal(first, before)
    assert torch.equal(second, before)


@pytest.mark.parametrize(
    "weight",
    [torch.tensor(0.3), torch.ones(5, 0), drawn((4, 3)).float().t(), drawn((6, 4)).float()[:, ::2]],
    ids=["one number", "empty", "turned", "with gaps"],
)
def test_a_neighbor_of_any_layout_is_another_and_goes_back(weight: torch.Tensor) -> None:
    module = nn.Identity()
    module.register_parameter("weight", nn.Parameter(weight))
    variant = inference(module, torch.ones(4)).variant()
    (given,) = variant.program.module.parameters()
    before = given.detach().clone()
    with placed(variant, Data(neighbor=1)):
        assert torch.equal(given, before) is not bool(weight.numel())
        assert torch.allclose(given, before, rtol=2.0**-9)
    assert torch.equal(given, before)


def test_other_tokens_are_tokens_of_the_same_row() -> None:
    tokens = torch.randint(0, 50, (4, 16), generator=torch.Generator().manual_seed(0))
    variant = inference(nn.Identity(), tokens.clone()).variant()
    with placed(variant, Data(inputs=True)) as changed:
        assert changed == (INPUTS,)
        other = variant.program.args[0]
        assert not torch.equal(other, tokens)
        assert torch.equal(other.sort(dim=-1).values, tokens.sort(dim=-1).values)


def test_weights_are_as_before_where_one_of_them_takes_no_change(monkeypatch: Patch) -> None:
    variant = trial("mlp", "float32").variant()
    before = [p.detach().clone() for p in variant.program.module.parameters()]
    changes = data._change_weights

    def failing(module: nn.Module) -> Iterator[Callable[[], object]]:
        yield next(changes(module))
        raise NotImplementedError("neg_ of this type")

    monkeypatch.setattr(data, "_change_weights", failing)
    with pytest.raises(NotImplementedError), placed(variant, Data(weights=True)):
        pass
    assert all(map(torch.equal, before, variant.program.module.parameters()))


def test_a_sparse_input_is_measured() -> None:
    """As the adjacency of a graph: it has no memory whose bits could be compared."""
    adjacency = torch.eye(8).to_sparse()
    work = Workload(module=Of(lambda a, line: line(a @ torch.ones(8, 8)), nn.Linear(8, 4)), args=(adjacency,))
    status, parity, _ = judged(with_fault(right), lambda: work, Mode.INFERENCE)
    assert status is Status.PASS, parity
