"""Copies of a workload, the step made of one, and what is left to compare."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from torch import nn

from harness import devices
from harness.program import forward_of
from harness.schema import Mode
from harness.tensors import cast_module, map_tensors, named_tensors
from harness.timing.copies import replica
from harness.timing.step import Variant, seed_everything
from harness.timing.workbench import cloned
from harness.workload import Workload
from tests.factories import Patch
from tests.worker.planted import CPU, Trial, results, trial


def variant_of(work: Workload, dtype: str = "float32", mode: Mode = Mode.INFERENCE, **more: Any) -> Variant:
    return Trial(workload=work, dtype=dtype, mode=mode).variant(**more)


# -- seeds ---------------------------------------------------------------------------------
def test_seeding_covers_numpy_and_seeds_larger_than_it_takes() -> None:
    import numpy as np

    seed_everything(2**40 + 5)
    first = np.random.rand()  # noqa: NPY002 - the generator that models use
    seed_everything(2**40 + 5)
    assert np.random.rand() == first  # noqa: NPY002


# -- nested values ----------------------------------------------------------------------------
class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Boxed:
    inner: Any
    label: str = "kept"


def nested() -> Any:
    ones = torch.ones
    return {"a": [ones(1), (ones(2), "text")], "b": Pair(ones(3), None), "c": Boxed(inner={"d": ones(4)})}


def test_every_tensor_has_a_name_that_says_where_it_was_and_is_changed() -> None:
    sizes = {name: tensor.numel() for name, tensor in named_tensors(nested(), "x")}
    assert sizes == {"x.a.0": 1, "x.a.1.0": 2, "x.b.0": 3, "x.c.inner.d": 4}
    changed = map_tensors(nested(), lambda tensor: tensor + 1)
    assert all(bool((t == 2).all()) for _, t in named_tensors(changed, "x"))
    assert [type(changed[name]) for name in "bc"] == [Pair, Boxed]
    assert (changed["c"].label, changed["a"][1][1]) == ("kept", "text")


# -- copies of modules --------------------------------------------------------------------------------
class Mixed(nn.Module):
    """Parameters and buffers of every kind, one of them tied, one shared."""

    shared: torch.Tensor
    phases: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("phases", torch.polar(torch.ones(4), torch.arange(4.0)))
        self.register_buffer("count", torch.tensor(3))
        self.register_buffer("shared", torch.ones(4))
        self.first.register_buffer("shared", self.shared)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(self.first(x))
        return y * self.phases.real


@pytest.mark.parametrize(
    ("cast", "phases"), [(torch.bfloat16, torch.complex64), (torch.float64, torch.complex128)]
)
def test_a_cast_keeps_imaginary_parts_ties_and_integers(cast: torch.dtype, phases: torch.dtype) -> None:
    module = Mixed()
    before = module.phases.clone()
    cast_module(module, cast)
    assert module.first.weight.dtype is cast
    assert module.second.weight is module.first.weight
    assert module.phases.dtype is phases
    assert torch.equal(module.phases.to(torch.complex64), before)
    assert module.count.dtype is torch.int64
    assert module.shared.dtype is cast
    assert module.first.shared is module.shared
    assert set(dict(module.named_buffers())) == {"phases", "count", "shared"}
    module(torch.ones(2, 4, dtype=cast))


def test_the_fp64_copy_has_the_weights_and_inputs_that_are_timed() -> None:
    work = trial("conv").workload
    timed = replica(work, CPU, torch.bfloat16, training=False)
    exact = replica(work, CPU, torch.bfloat16, training=False, exact=True)
    for mine, theirs in zip(timed.module.parameters(), exact.module.parameters(), strict=True):
        assert (mine.dtype, theirs.dtype) == (torch.bfloat16, torch.float64)
        assert torch.equal(mine.double(), theirs)
    assert exact.args[0].dtype is torch.float64
    assert torch.equal(timed.args[0].double(), exact.args[0])


# -- the step -------------------------------------------------------------------------------------------
class _Moved(nn.Linear):
    """Notes the type that it has when it is moved, and how many copies were made of its weight before."""

    types: ClassVar[list[torch.dtype]] = []

    def to(self, *given: Any, **more: Any) -> Any:
        self.types.append(self.weight.dtype)
        return super().to(*given, **more)


@pytest.mark.parametrize("exact", [False, True])
def test_a_copy_is_cast_before_it_is_moved(monkeypatch: Patch, *, exact: bool) -> None:
    """In full precision it would need twice its memory on the device."""
    monkeypatch.setattr(_Moved, "types", [])
    monkeypatch.setattr("harness.timing.copies.of", lambda _: devices.named("cuda"))  # of this CPU
    module = _Moved(4, 4)
    weight = module.weight.detach().clone()
    whole: list[object] = []
    monkeypatch.setattr(nn.Parameter, "__deepcopy__", lambda parameter, _: whole.append(parameter))
    work = Workload(module=module, args=(torch.ones(1, 4),))
    twin = replica(work, CPU, torch.bfloat16, training=False, exact=exact)
    assert not whole, "a copy of all parameters before the first is cast"
    assert module.types == [torch.bfloat16]
    copied = next(twin.module.parameters())
    assert copied.dtype == (torch.float64 if exact else torch.bfloat16)
    copied.data.zero_()
    assert torch.equal(module.weight, weight)


def test_a_training_step_gives_the_gradients_of_one_backward_however_often_it_runs() -> None:
    subject = trial("mlp").variant()
    once = results(subject)
    for _ in range(3):
        subject.step()
    again = results(subject)
    assert {name for name in once if name.startswith("gradient.")} == {
        f"gradient.{name}" for name, _ in subject.program.module.named_parameters()
    }
    assert all(torch.equal(once[name], again[name]) for name in once)


def test_an_input_that_wants_a_gradient_gets_a_fresh_one_each_step() -> None:
    x = torch.randn(4, 32, requires_grad=True)
    work = Workload(module=nn.Linear(32, 8), args=(x,), loss=lambda output, _: output.sum())
    subject = variant_of(work, mode=Mode.TRAINING)
    first = results(subject)["input_gradient.0.0"]
    subject.step()
    assert torch.equal(results(subject)["input_gradient.0.0"], first)
    assert bool(first.any())
    subject.release()
    assert subject.program.args[0].grad is None
    assert x.grad is None


def test_inference_computes_no_gradients_and_no_loss() -> None:
    subject = trial("mlp", mode=Mode.INFERENCE).variant()
    loss, output = subject.step()
    assert loss is None
    assert not output.requires_grad
    assert set(subject.results(loss, output, cloned)) == {"output"}


def test_autocast_covers_forward_and_loss_and_not_the_backward() -> None:
    seen: dict[str, bool] = {}

    class Watch(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            seen["forward"] = torch.is_autocast_enabled("cpu")
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            seen["backward"] = torch.is_autocast_enabled("cpu")
            return grads[0]

    class Watched(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = Watch.apply(super().forward(x))  # type: ignore[no-untyped-call]
            return y

    def loss(output: torch.Tensor, _: Any) -> torch.Tensor:
        seen["loss"] = torch.is_autocast_enabled("cpu")
        return output.float().sum()

    work = Workload(module=Watched(4, 4), args=(torch.ones(2, 4),), loss=loss)
    tensors = results(variant_of(work, "amp", Mode.TRAINING))
    assert seen == {"forward": True, "loss": True, "backward": False}
    assert tensors["output"].dtype is torch.bfloat16
    assert tensors["gradient.weight"].dtype is torch.float32


def test_every_forward_has_its_own_code() -> None:
    module = nn.Linear(2, 2)
    first, second = (getattr(forward_of(module, None), "__code__") for _ in range(2))  # noqa: B009 - for mypy
    assert first is not second
    assert first.co_code == second.co_code


# -- restoring --------------------------------------------------------------------------------------------
class Restless(nn.Module):
    """Changes its input, a counter and a buffer's very object in every step."""

    count: torch.Tensor
    replaced: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("replaced", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.replaced = self.replaced * 2
        return x.mul_(2) + self.count


def test_a_run_starts_from_the_first_buffers_and_inputs_in_place() -> None:
    work = Workload(module=Restless(), args=(torch.ones(3),))
    subject = variant_of(work)
    counter, given = subject.program.module.count, subject.program.args[0]
    first = results(subject)
    assert first["output"].tolist() == [3.0, 3.0, 3.0]
    for _ in range(3):
        subject.step()
    again = results(subject)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert subject.program.module.count is counter
    assert subject.program.args[0] is given
    assert work.args[0].tolist() == [1.0, 1.0, 1.0]


def test_sparse_gradients_are_compared_as_dense_ones() -> None:
    work = Workload(
        module=nn.Embedding(10, 4, sparse=True),
        args=(torch.tensor([1, 1, 3]),),
        loss=lambda output, _: output.square().sum(),
    )
    first, again = (results(variant_of(work, mode=Mode.TRAINING))["gradient.weight"] for _ in range(2))
    assert first.layout is torch.strided
    assert first.shape == (10, 4)
    assert sorted(first.any(1).nonzero().flatten().tolist()) == [1, 3]
    assert torch.equal(first, again)


# -- sizes --------------------------------------------------------------------------------------------------
def test_persistent_bytes_count_every_storage_once() -> None:
    x = torch.ones(5, 4)
    work = Workload(module=Mixed(), args=(x,), target=torch.zeros(3, dtype=torch.int64))
    subject = variant_of(work)
    # tied weight, two biases; complex64 phases, int64 count, one shared buffer; input; target
    assert subject.persistent_bytes() == 64 + 2 * 16 + 4 * 8 + 8 + 16 + 80 + 24


def test_channels_last_moves_weights_and_inputs_of_four_dimensions() -> None:
    work = Workload(
        module=nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)),
        args=(torch.randn(2, 3, 4, 4, requires_grad=True),),
        loss=lambda output, _: output.sum(),
    )
    program = replica(work, CPU, None, training=True, channels_last=True)
    for tensor in (program.module[0].weight, program.args[0]):  # type: ignore[index] # a Sequential
        assert tensor.is_contiguous(memory_format=torch.channels_last)
        assert tensor.requires_grad
    assert work.args[0].is_contiguous()
    assert work.module[0].weight.is_contiguous()  # type: ignore[index]
    plain = replica(work, CPU, None, training=True)
    torch.testing.assert_close(program.module(*program.args), plain.module(*plain.args))
