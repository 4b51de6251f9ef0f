"""Training steps that end with an optimizer: every sample begins alike, and parity covers the update."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from harness.program import Batch, Compiled, Program, forward_of
from harness.protocol import OPTIMIZERS
from harness.schema import BASELINE, CompilerOptions, Protocol, Status
from harness.timing.optimizer import CLASSES, Update
from harness.timing.step import Variant
from harness.worker.session import Session
from harness.workload import Workload
from tests.factories import Patch, known
from tests.worker import planted, test_session
from tests.worker.planted import Backend, Forward, failed, failing, go_on, with_fault
from tests.worker.test_session import job

pytestmark = pytest.mark.usefixtures("fresh_compiler")


WHOLE = "aot_eager[whole_step=True]"
dynamo_looks_at_grad = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")


def opened(
    name: str, optimizer: str, dtype: str = "float32", compiler: Backend | None = None, **more: Any
) -> Session:
    """``compiler``: of the candidate "planted"."""
    compilers = {} if compiler is None else {"planted": compiler}
    return test_session.opened(job(name, dtype=dtype, optimizer=optimizer, **more), **compilers)


def weights_of(variant: Variant) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in variant.program.module.named_parameters()}


def test_the_flag_offers_what_there_is() -> None:
    assert ("none", *CLASSES) == OPTIMIZERS


class Averaging(torch.optim.Optimizer):
    """Keeps a copy of each weight, made in its first step, and counts its steps in Python."""

    def __init__(self, weights: Any, lr: float = 1e-2) -> None:
        super().__init__(weights, {"lr": lr, "steps": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["steps"] += 1
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["parts"] = [weight.clone()]
                state["parts"][0].sub_(weight.grad, alpha=group["lr"])
                weight.lerp_(state["parts"][0], 1 / group["steps"])


OWN: dict[str, Callable[..., Any]] = {
    "Adagrad": partial(torch.optim.Adagrad, lr=1e-2, initial_accumulator_value=0.5),
    "NAdam": torch.optim.NAdam,
    "Rprop": torch.optim.Rprop,
    "Adafactor": torch.optim.Adafactor,
    "Averaging": Averaging,
}


@pytest.mark.parametrize("name", [*CLASSES, *OWN])
def test_an_optimizer_whose_state_is_there_from_the_beginning_steps_as_torchs_own(name: str) -> None:
    torch.manual_seed(0)
    ours, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(ours.state_dict())
    update = Update(Protocol(optimizer=name), ours, 1.0, OWN.get(name))
    assert all(bool((p == q).all()) for p, q in zip(ours.parameters(), theirs.parameters(), strict=True))
    plain = OWN[name](theirs.parameters()) if name in OWN else CLASSES[name](theirs.parameters(), lr=1e-4)
    for weight in theirs.parameters():
        weight.grad = torch.zeros_like(weight)
    plain.step()
    theirs.load_state_dict(ours.state_dict())
    for number in range(3):
        for module in (ours, theirs):
            module.zero_grad()
            module(torch.full((4, 3), 1.0 + number)).square().sum().backward()
        update()
        plain.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=0)


def test_gradients_of_a_scaled_loss_are_divided_first() -> None:
    module = nn.Linear(1, 1, bias=False)
    update = Update(Protocol(optimizer="sgd"), module, 8.0)
    before = float(module.weight.detach())
    module.weight.grad = torch.full((1, 1), 8.0)
    update()
    assert before - float(module.weight.detach()) == pytest.approx(1e-4, rel=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.series
def test_every_sample_begins_with_the_same_weights_and_compilers_agree(name: str, dtype: str) -> None:
    session = opened("norm", name, dtype)
    for candidate in ("eager", "aot_eager"):
        status, parity, _, _ = session.prepare(candidate)
        assert status is Status.PASS, parity
        updates = 6  # two layers and a norm, each with weight and bias
        assert known(parity).tensors == 11 + updates + {"sgd": 1}.get(name, 2) * updates
    variants = session._variants
    first = {name: weights_of(variant) for name, variant in variants.items()}
    go_on(session)
    for which, variant in variants.items():
        moved = weights_of(variant)
        assert any(not torch.equal(first[which][n], w) for n, w in moved.items())
        variant.rewind()
        assert all(torch.equal(w, weights_of(variants[BASELINE])[n]) for n, w in weights_of(variant).items())
    changed, numbers, failed = session.finish()
    assert (changed, failed) == ({}, {})
    assert numbers[BASELINE]["persistent_bytes"] == numbers["aot_eager"]["persistent_bytes"]


def stale(program: Program, _: Forward) -> Forward:
    """Computes with the weights of its compilation, and gives gradients to the present ones."""
    kept = {name: p.detach().clone() for name, p in program.module.named_parameters()}

    def module(*args: Any, **kwargs: Any) -> Any:
        present = dict(program.module.named_parameters())
        used = {name: kept[name] + (p - p.detach()) for name, p in present.items()}
        return torch.func.functional_call(program.module, used, args, dict(kwargs))

    return forward_of(module, program.loss)


@pytest.mark.slow
def test_a_compiler_that_keeps_its_first_weights_fails_at_the_second_step() -> None:
    status, parity, _, _ = opened("linear", "sgd", compiler=with_fault(stale)).prepare("planted")
    assert status is Status.FAIL_ACCURACY
    assert known(parity).found_by == "call 2"


def test_a_sample_that_begins_with_other_weights_is_seen(monkeypatch: Patch) -> None:
    session = opened("linear", "sgd")
    session.prepare("eager")
    rewind = Variant.rewind

    def only_eager(variant: Variant) -> None:
        if variant is session._variants[BASELINE]:
            rewind(variant)

    monkeypatch.setattr(Variant, "rewind", only_eager)
    session.warm_up()
    for variant in session._variants.values():
        with torch.no_grad():
            next(variant.program.module.parameters()).mul_(1.5)
    session.measure(3)
    changed, _, _ = session.finish()
    assert set(changed) == {"eager"}


def test_a_state_that_is_not_put_back_is_seen() -> None:
    session = opened("linear", "adamw")
    session.prepare("eager")
    variant = session._variants["eager"]
    variant._initial = {n: t for n, t in variant._initial.items() if not n.startswith("optimizer.")}
    go_on(session)
    changed, _, _ = session.finish()
    assert set(changed) == {"eager"}
    assert changed["eager"].name.startswith(("optimizer.", "update."))


@dynamo_looks_at_grad
@pytest.mark.slow
def test_the_whole_step_is_compiled_with_its_optimizer() -> None:
    session = opened("norm", "sgd")
    status, parity, numbers, notes = session.prepare(WHOLE)
    assert (status, numbers["compiled_region"], notes) == (Status.PASS, "step", ()), parity
    assert int(str(numbers["unique_graphs"])) >= 2  # of the model, and of the optimizer
    assert go_on(session) == {}
    assert session.finish()[0] == {}


@pytest.mark.slow
@dynamo_looks_at_grad
def test_a_whole_step_also_runs_smaller_batches() -> None:
    options = CompilerOptions(whole_step=True, dynamic_batch=True)
    session = planted.opened(lambda: planted.workload("mlp"), options=options, optimizer="sgd")
    status, parity, numbers, _ = session.prepare("aot_eager")
    assert (status, numbers["compiled_region"]) == (Status.PASS, "step")
    plain = planted.opened(lambda: planted.workload("mlp")).prepare("eager")[1]
    assert known(parity).tensors > known(plain).tensors


@dynamo_looks_at_grad
@pytest.mark.slow
def test_a_compiler_that_sees_the_optimizer_alone_has_compiled_nothing() -> None:
    def hidden() -> Workload:
        work = planted.workload("mlp")
        work.module.forward = torch.compiler.disable(work.module.forward)  # type: ignore[no-untyped-call]
        return work

    session = planted.opened(hidden, optimizer="sgd")
    assert failed(lambda: session.prepare(WHOLE)).status is Status.NOT_COMPILED


def stepping(times: float) -> planted.Backend:
    """A compiler of whole steps whose update is so many times that of eager."""

    def wrong(program: Program) -> Compiled:
        def compile_batch(batch: Batch) -> Batch:
            def too_far(*given: Any) -> tuple[Any, Any]:
                weights = list(program.module.parameters())
                before = [weight.detach().clone() for weight in weights]
                results = batch(*given)
                with torch.no_grad():
                    for weight, was in zip(weights, before, strict=True):
                        weight.add_(weight - was, alpha=times - 1)
                return results

            return too_far

        forward = program.forward()
        return Compiled(forward=forward, region="step", compiler_calls=lambda: 1, compile_batch=compile_batch)

    return wrong


@pytest.mark.parametrize("times", [0, 1.05, 2])  # 0: no update at all
@pytest.mark.parametrize("name", ["sgd", "adamw"])
@pytest.mark.series
def test_a_wrong_update_of_a_whole_step_fails(name: str, times: float) -> None:
    verdict = opened("linear", name, compiler=stepping(times)).prepare("planted")
    assert failing(verdict).name.startswith("update.")


@pytest.mark.parametrize("name", ["Adagrad", "Averaging"])
@pytest.mark.slow
def test_the_users_own_optimizer_is_put_back_where_results_are_compared(name: str) -> None:
    def work() -> Workload:
        return dataclasses.replace(planted.workload("mlp"), optimizer=OWN[name])

    session = planted.opened(work, optimizer="here:own", min_sample_s=0.05)
    for candidate in ("eager", "aot_eager"):
        status, parity, _, _ = session.prepare(candidate)
        assert status is Status.PASS, parity
    assert int(str(session.warm_up()["iterations_per_sample"])) > 1
    session.measure(3)
    variant = session._variants["aot_eager"]
    update = known(variant._update)
    variant.restore()
    assert update._optimizer.param_groups[0].get("steps", 1) == 1
    assert session.finish()[0] == {}


def raising(_: Any) -> Any:
    raise KeyError("no rate")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"optimizer": raising}, "optimizer: its function raised KeyError: 'no rate'"),
        ({"optimizer": list}, "optimizer: its function returned a list, which is no torch.optim.Optimizer"),
        (
            {"optimizer": lambda weights: torch.optim.SGD(weights[1:], lr=1.0)},
            "optimizer: of the parameters that its function is given, it leaves out 0.weight; set requires_",
        ),
        ({"optimizer": torch.optim.LBFGS}, "calls the model again by a closure"),
    ],
)
def test_what_is_wrong_with_a_users_own_function_is_a_sentence(given: dict[str, Any], says: str) -> None:
    names: dict[str, Any] = dict.fromkeys(given, "here:own")
    work = dataclasses.replace(planted.workload("mlp"), **given)
    failure = failed(lambda: planted.opened(lambda: work, **names))
    assert failure.status is Status.EAGER_1ST_RUN_FAIL
    assert says in failure.failure.message
