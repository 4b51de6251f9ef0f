"""Training runs in a worker: what repeats, what differs, and what is found outside."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness.numerics.trajectory import Trajectories
from harness.recorded.numerics import AGAIN
from harness.schema import Course, Extras, Protocol
from harness.timing.step import Variant
from harness.worker.session import Session
from runner.analysis.verdicts.trajectory import Stays
from runner.errors import UsageError
from suites.models.additions import END, EQUALS, additions
from tests.worker import test_session
from tests.worker.test_session import job
from torchduet import compare

pytestmark = pytest.mark.usefixtures("fresh_compiler")
STEPS = 20


def opened(name: str = "linear", **protocol: Any) -> Session:
    of = dataclasses.replace(
        job(name, accuracy=False, performance=False, **protocol), extras=Extras(trajectory=STEPS)
    )
    return test_session.opened(of)


def runs_of(session: Session, said: Callable[[str], None] = lambda _: None) -> Trajectories:
    return Trajectories(session._job, session._bench, said, 0.001)


@pytest.mark.parametrize("optimizer", ["none", "sgd"])
def test_runs_repeat_and_noise_differs(optimizer: str) -> None:
    said: list[str] = []
    session = opened("norm", optimizer=optimizer)
    runs = runs_of(session, said.append)
    eager, again, noisy = runs.run("eager"), runs.run(AGAIN), runs.run("noisy 1")
    assert eager.loss[-1] < eager.loss[0]
    assert eager.parameters[0] < eager.parameters[-1]
    assert not any((*again.loss, *again.gradient_norm, *again.parameters))
    assert 0 < max(map(abs, noisy.loss)) < 1e-3
    assert runs.run("seed 1") == Course(name="seed 1")  # without batches, there is no other data
    session.prepare("eager")
    candidate = session._variants["eager"]
    assert not any(runs.run("eager", candidate).parameters)
    assert 0 < max(map(abs, runs.run("eager", candidate, 1).loss)) < 1e-3
    assert said[0].startswith("eager, step 0 of 20, about 0 s left")


def _rate(variant: Variant) -> None:
    training = variant.training
    variant.training = lambda weights, protocol, rate: training(weights, protocol, 1.01 * rate)  # type: ignore[method-assign]


def test_the_rate_of_an_optimizer_is_that_of_the_setting() -> None:
    for optimizer in ("none", "adamw"):
        session = opened(optimizer=optimizer)
        runs = runs_of(session)
        runs.run("eager")
        wrong = session._bench.variant()
        _rate(wrong)
        assert runs.run("wrong", wrong).parameters[-1] == pytest.approx(0.01, rel=0.2)


def test_additions_can_be_learned() -> None:
    text = additions(50, 27, 3)
    assert text.shape == (50, 27)
    assert torch.equal(text, additions(50, 27, 3))
    for row in text.tolist():
        last = max(place for place, symbol in enumerate(row) if symbol == EQUALS)
        x, y, total = row[last - 7 : last - 4], row[last - 3 : last], row[last + 1 :]
        value = sum(10**n * (a + b) for n, (a, b) in enumerate(zip(x, y, strict=True)))
        digits = [value // 10**n % 10 for n in range(4)] + [END]
        assert 1 <= len(total) <= 5
        assert total == digits[: len(total)]


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output - target).square().mean()


def pairs(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
    return x, x.sum(1, keepdim=True)


@pytest.mark.parametrize("batches", [pairs, [pairs(n) for n in range(3)], None])
def test_compare_trains_on_batches(batches: Any) -> None:
    x, y = pairs(0)
    few: Any = {"protocol": Protocol(performance=False), "compilers": "eager"}
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    result = compare(model, x, loss=loss, target=y, batches=batches, trajectory=STEPS, **few)
    known = result.records[0].trajectory
    assert known is not None
    assert (known.data, len(known.courses)) == (("one batch", 5) if batches is None else ("batches", 6))
    assert result.comparisons[0].value("trajectory") == Stays.INSIDE.value
    assert "Training runs: 20 steps" in str(result)


class Heads(nn.Linear):
    def forward(self, x: torch.Tensor) -> Any:
        return x @ self.weight.T, 2 * self.bias  # of which the loss needs the first alone


def test_weights_that_only_a_compiled_step_decays_are_named() -> None:
    x, y = pairs(0)
    few: Any = {"protocol": Protocol(performance=False), "compilers": "aot_eager", "trajectory": STEPS}
    result = compare(Heads(4, 1), x, loss=lambda output, target: loss(output[0], target), target=y, **few)
    verdict = result.comparisons[0].value("trajectory")
    assert "(parameters); bias has a gradient, which eager lacks" in str(verdict)


@pytest.mark.parametrize(
    ("batches", "sentence"),
    [
        (lambda step: (torch.ones(9, 4), torch.ones(9, 1)), "batches: that of step 0 has"),
        (lambda step: torch.ones(8, 4), "batches: with a target, each is a pair of inputs and target"),
    ],
)
def test_batches_of_another_form_cost_the_trajectory_alone(batches: Any, sentence: str) -> None:
    x, y = pairs(0)
    few: Any = {"protocol": Protocol(performance=False), "compilers": "eager"}
    result = compare(nn.Linear(4, 1), x, loss=loss, target=y, batches=batches, trajectory=STEPS, **few)
    (record,) = result.records
    assert record.status.passed
    assert any(sentence in note for note in record.notes)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"batches": 3}, "batches: give a list, or a function of the number of a step, not of type int"),
        ({"mode": "inference"}, "extras.trajectory trains; leave it out, or add mode="),
        ({"trajectory": 5}, "extras.trajectory: 5 is too small"),
    ],
)
def test_what_is_refused(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        compare(nn.Linear(4, 1), torch.ones(8, 4), **{"trajectory": STEPS, **more})
