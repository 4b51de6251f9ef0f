"""What models keep and return: copies of hooks, state in attributes, other containers, other outputs."""

import copy
import functools
import itertools
import random
import re
import weakref
from collections import UserDict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from harness.failures import JobFailed
from harness.schema import Mode, Status
from harness.tensors import fresh_copy, named_tensors
from harness.timing.copies import copied
from harness.workload import Workload
from tests.factories import known
from tests.worker.planted import (
    CPU,
    Of,
    changing,
    failed,
    failing,
    judged,
    opened,
    right,
    unopened,
    with_fault,
)


# -- copies of models ---------------------------------------------------------------------
class Hooked(nn.Module):
    """Only the hook uses ``scale``, and what the forward returns is what the hook keeps."""

    def __init__(self, make: Callable[["Hooked"], Any]) -> None:
        super().__init__()
        self.line, self.features = nn.Linear(4, 4), dict[str, torch.Tensor]()
        self.scale = nn.Parameter(torch.ones(4))
        self.line.register_forward_hook(make(self))

    def keep(self, _: Any, __: Any, output: torch.Tensor) -> None:
        self.features["line"] = output * self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.line(x)
        return self.features["line"]


def by_closure(model: Hooked) -> Any:
    return lambda *given: model.keep(*given)


def by_decorator(model: Hooked) -> Any:
    inner = by_closure(model)
    return functools.wraps(inner)(lambda *given: inner(*given))


def by_dict_and_parameter(model: Hooked) -> Any:
    features, scale = model.features, model.scale
    return lambda *given: features.update(line=given[-1] * scale)


def kept_in(holder: Any, find: Callable[[Any], Any]) -> Any:
    return lambda *given: find(holder).keep(*given)


MAKERS: tuple[Callable[[Hooked], Any], ...] = (
    *(by_closure, by_decorator, by_dict_and_parameter),
    lambda model: kept_in(SimpleNamespace(models=[model]), lambda holder: holder.models[0]),
    lambda model: kept_in(weakref.ref(model), lambda holder: holder()),
    lambda model: lambda *given, of=model: of.keep(*given),
    lambda model: functools.partial(by_closure(model)),
)
GLOBAL: Hooked = Hooked(lambda _: lambda *given: GLOBAL.keep(*given))


@pytest.mark.parametrize("make", [*MAKERS, lambda model: model.keep, None])
def test_a_copy_refers_to_nothing_of_the_original(make: Any) -> None:
    model = GLOBAL if make is None else Hooked(make)
    twin = copied(copied(model, {}), {})  # a copy of a copy, too
    twin(torch.ones(2, 4)).sum().backward()
    assert not model.features
    assert all(weight.grad is None for weight in model.parameters())
    assert all(weight.grad is not None for weight in twin.parameters())


def test_a_parameter_that_only_a_hook_uses_has_a_compared_gradient() -> None:
    work = Workload(module=Hooked(by_closure), args=(torch.randn(3, 4),), loss=lambda y, _: y.sum())
    status, parity, _ = judged(with_fault(right), lambda: work)
    assert (status, parity.tensors) == (Status.PASS, 5)  # output, loss, three gradients


def test_hooks_of_parameters_and_hooks_that_remove_themselves_are_of_the_copy() -> None:
    model = nn.Linear(4, 4)

    def once(*_: Any) -> None:
        handle.remove()

    handle = model.register_forward_hook(once)
    model.weight.register_hook(lambda gradient: gradient * 0)  # type: ignore[no-untyped-call]
    twin = copied(model, {})
    twin(torch.ones(2, 4)).sum().backward()
    assert (len(model._forward_hooks), len(twin._forward_hooks)) == (1, 0)
    assert not bool(twin.get_parameter("weight").grad.any())  # type: ignore[union-attr]


def test_what_the_copies_would_share_is_refused_in_a_sentence() -> None:
    model, adapter = nn.Linear(4, 4), nn.Linear(4, 4)
    model.register_forward_hook(lambda *given: [adapter][0](given[-1]))
    with pytest.raises(JobFailed, match=r"its function .* uses adapter, with a module .* no part") as caught:
        copied(model, {})
    assert caught.value.status is Status.MODEL_FAIL_TO_LOAD


PUT_BACK = "where a check begins anew, it is put back"


# -- state ----------------------------------------------------------------------------------
class Stateful(nn.Module):
    def __init__(self, state: Any, step: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.line, self.state, self.function = nn.Linear(4, 4), state, step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.line(x)
        return y + self.function(self, y.detach())  # type: ignore[no-any-return]


def trace(model: Any, y: torch.Tensor) -> Any:
    model.state = model.state * 0.9 + y
    return model.state


def in_place(model: Any, y: torch.Tensor) -> Any:
    return model.state.mul_(0.5).add_(y).clone()


def append(model: Any, y: torch.Tensor) -> Any:
    model.state.append(y)
    return sum(model.state)


def count(model: Any, _: torch.Tensor) -> Any:
    model.state.calls += 1
    return model.state.calls


def created(model: Any, y: torch.Tensor) -> Any:
    model.cache = getattr(model, "cache", 0) + y
    return model.cache


STATES: dict[str, tuple[Callable[[], Any], Any]] = {
    "trace": (float, trace),
    "in place": (lambda: torch.ones(3, 4), in_place),
    "list": (list, append),
    "deque": (lambda: deque(maxlen=9), append),
    "counter of an object": (lambda: SimpleNamespace(calls=0), count),
    "created": (float, created),
    "generator": (lambda: torch.Generator().manual_seed(1), lambda m, _: torch.rand(4, generator=m.state)),
    "Python's generator": (lambda: random.Random(1), lambda m, _: m.state.random()),
    "generator of numpy": (lambda: np.random.default_rng(1), lambda m, _: m.state.random()),
    "array": (lambda: np.zeros(1), lambda m, _: float(m.state.__iadd__(1)[0])),
    "iterator": (itertools.count, lambda m, _: next(m.state)),
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.series
def test_state_in_attributes_is_put_back_and_named(name: str) -> None:
    make, step = STATES[name]
    attribute = "cache" if name == "created" else "state"

    def build() -> Workload:
        torch.manual_seed(0)
        return Workload(module=Stateful(make(), step), args=(torch.randn(3, 4),))

    session = unopened(build, Mode.INFERENCE, compilers={"right": with_fault(right)})
    facts, _ = session.open()
    assert f"state that is no buffer goes on from call to call in {attribute}: {PUT_BACK}" in facts.remarks
    assert session.prepare("right")[0] is Status.PASS


def test_a_model_whose_state_changes_no_result_is_left_alone() -> None:
    work = Workload(module=Stateful([], lambda of, y: of.state.append(0) or y), args=(torch.ones(2, 4),))
    facts, _ = unopened(lambda: work, Mode.INFERENCE).open()
    assert not [remark for remark in facts.remarks if remark.startswith("state")]


# -- objects that are given ------------------------------------------------------------------
class Slotted:
    __slots__ = ("__dict__", "x")
    x: torch.Tensor


def in_slots(x: torch.Tensor) -> Slotted:
    value = Slotted()
    value.x = x
    return value


class Shelf(list[Any]):
    """A list whose __init__ takes something else."""

    def __init__(self, _: int, __: int) -> None:
        super().__init__()


def in_shelf(x: torch.Tensor) -> Shelf:
    shelf = Shelf(1, 2)
    shelf.append(x)
    return shelf


def in_circle(x: torch.Tensor) -> SimpleNamespace:
    value = SimpleNamespace(x=x)
    value.me = [value]
    return value


HOLDERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "namespace": lambda x: SimpleNamespace(x=x),
    "inner": lambda x: [SimpleNamespace(inner={"x": SimpleNamespace(x=x)})],
    "slots": in_slots,
    "deque": lambda x: deque([x], 3),
    "shelf": in_shelf,
    "circle": in_circle,
    "UserDict": lambda x: UserDict({"x": x}),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_an_object_of_any_class_is_copied_and_cast(name: str) -> None:
    x = torch.ones(2, requires_grad=True)
    value = HOLDERS[name](x)
    twin = fresh_copy(value, CPU, torch.bfloat16)
    assert type(twin) is type(value)
    (_, tensor), *more = named_tensors(twin, "x")
    assert (tensor.dtype, tensor.requires_grad, more) == (torch.bfloat16, True, [])
    assert next(named_tensors(value, "x"))[1] is x
    with torch.no_grad():
        tensor.zero_()
    assert x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("make", [*HOLDERS.values(), np.ones], ids=[*HOLDERS, "array"])
@pytest.mark.series
def test_nothing_of_the_callers_is_changed(make: Callable[[Any], Any]) -> None:
    generator, target, x = torch.Generator().manual_seed(1), torch.ones(2, 2), torch.ones(2, 2)
    before, given = generator.get_state(), make(2 if make is np.ones else x)

    def step(value: Any, generator: torch.Generator, line: nn.Linear) -> torch.Tensor:
        tensors = [tensor.mul_(2) for _, tensor in named_tensors(value, "x")]
        if isinstance(value, np.ndarray):
            value += 1
            tensors.append(torch.tensor(value, dtype=torch.float32))
        return line(sum(tensors)) + torch.rand(2, generator=generator)  # type: ignore[no-any-return]

    def loss(output: torch.Tensor, target: Any) -> torch.Tensor:
        return (output - target.y.mul_(2)).square().mean()  # type: ignore[no-any-return]

    target_of = SimpleNamespace(y=target)
    model = Of(step, nn.Linear(2, 2))
    work = Workload(module=model, args=(given, generator), loss=loss, target=target_of)
    status, *_ = judged(with_fault(right), lambda: work)
    assert status is Status.PASS
    assert torch.equal(generator.get_state(), before)
    assert bool((x == 1).all())
    assert bool((target == 1).all())
    assert not isinstance(given, np.ndarray) or given.tolist() == [1.0, 1.0]
    assert all(weight.grad is None for weight in model.parameters())


class Odd:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __copy__(self) -> "Odd":
        raise ValueError("there is one")


def test_what_cannot_be_copied_is_refused_in_a_sentence() -> None:
    for given, words in (
        (Odd(torch.ones(2)), "Odd holds tensors .* there is one"),
        (nn.Linear(2, 2), "module"),
    ):
        work = Workload(module=Of(lambda x: x), args=(given,))
        caught = failed(functools.partial(opened, functools.partial(copy.copy, work), Mode.INFERENCE))
        assert caught.status is Status.MODEL_FAIL_TO_LOAD
        assert re.search(words, caught.failure.message)


# -- what is returned --------------------------------------------------------------------------
def output_of(value: Any) -> Callable[..., Any]:
    return lambda x, line: (line(x), value(line(x).detach()))


@pytest.mark.parametrize(
    ("value", "other", "words"),
    [
        (lambda y: y.numpy(), lambda a: a + 1, "off by"),
        (lambda y: {"a": [y.numpy()]}, lambda a: {"a": [a["a"][0][:1]]}, "shape"),
        (lambda y: y.sum().numpy()[()], lambda a: a * 2, "off by"),
        (lambda y: float(y.sum()), lambda a: a + 1, "off by"),
        (lambda _: torch.float32, lambda _: torch.float64, "torch.float64 instead of torch.float32"),
        (lambda _: SimpleNamespace(n=3), lambda _: SimpleNamespace(n=4), "4 instead of 3"),
        (lambda _: ("a", 1), lambda _: ("b", 1.0), "'b' instead of 'a'"),
        (lambda _: ("a", 1), lambda _: ("a",), "missing; eager's is 1"),
        (lambda _: ("a",), lambda _: ("a", 1), "1, which eager has not"),
    ],
)
@pytest.mark.series
def test_arrays_numbers_and_texts_are_compared(value: Any, other: Any, words: str) -> None:
    work = Workload(module=Of(output_of(value), nn.Linear(4, 4)), args=(torch.randn(3, 4),))
    status, parity, _ = judged(with_fault(right), lambda: work, Mode.INFERENCE)
    assert (status, parity.not_checked) == (Status.PASS, ())
    changed = changing(lambda output: (output[0], other(output[1])))
    assert words in known(failing(judged(with_fault(changed), lambda: work, Mode.INFERENCE)).failure)


COUNT = itertools.count()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (lambda _: np.array(["a"]), "output.1 (ndarray)"),
        (lambda _: {1, 2}, "output.1 (set)"),
        (lambda _: [object()], "output.1.0 (object)"),
        (lambda _: len, "output.1 (builtin_function_or_method)"),
        (lambda _: next(COUNT), "output.1 (eager's next call has another)"),
    ],
)
@pytest.mark.series
def test_what_cannot_be_compared_is_named(value: Any, why: str) -> None:
    work = Workload(module=Of(output_of(value), nn.Linear(4, 4)), args=(torch.randn(3, 4),))
    status, parity, _ = judged(with_fault(right), lambda: work, Mode.INFERENCE)
    assert status is Status.PASS
    assert parity.not_checked == (f"{why}: no tensors, numbers or texts that can be compared",)
