"""What turns wrong after the check is seen: in the rounds, or after them."""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from harness.parity.calls import Expected, Row
from harness.parity.data import FIRST_DATA
from harness.parity.rule import DELTA
from harness.parity.watch import ELEMENTS, LOOKS, Watch
from harness.schema import BASELINE, Mode, Status
from harness.workload import Workload
from tests.factories import Patch, known, sampled
from tests.worker.planted import (
    changing,
    drawn,
    every,
    go_on,
    opened,
    refusing,
    truth_of,
    with_fault,
    workload,
)


@pytest.mark.parametrize(("dtype", "mode"), sampled(3, ("float32", "amp"), (Mode.INFERENCE, Mode.TRAINING)))
@pytest.mark.series
def test_what_stays_as_it_was_is_not_reported(dtype: str, mode: Mode) -> None:
    for name in ("tokens", "conv"):
        session = opened(partial(workload, name), mode, dtype, repeat=3)
        assert session.prepare("eager")[0] is Status.PASS
        go_on(session)
        assert session.finish()[0] == {}


@pytest.mark.parametrize(("n", "phase", "dtype"), sampled(5, (5, 7, 20), range(3), ("float32", "bfloat16")))
def test_every_nth_call_that_is_wrong_from_the_eighth_on_is_found(n: int, phase: int, dtype: str) -> None:
    """In whatever call of its period the rounds begin."""
    compilers = {"planted": with_fault(every(n, first=8, factor=1.1))}
    session = opened(lambda: workload("mlp"), dtype=dtype, compilers=compilers, repeat=3)
    assert session.prepare("planted")[0] is Status.PASS  # it is right in all calls of the check
    for _ in range(phase):
        session._variants["planted"].step()
    go_on(session)
    (error,) = session.finish()[0].values()
    assert "timed rounds, from " in str(error.failure)


class Normalized(nn.Module):
    """A factor that the backward leaves out changes a gradient, and nothing else of what is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(nn.Linear(16, 16, bias=False), nn.BatchNorm1d(16))
        self.factor = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.parts[0](x)
        normalized: torch.Tensor = self.parts[1](hidden + (hidden * (self.factor - 1)).detach())
        return normalized


@pytest.mark.parametrize("n", [7, 20])
def test_a_fault_hidden_by_a_normalization_is_found_late(monkeypatch: Patch, n: int) -> None:
    """So many rounds on any machine: where the last step is wrong, a buffer shows it, too."""
    monkeypatch.setattr("harness.timing.warm_up.has_settled", lambda history: len(history) == 3)

    def plant(program: Any, forward: Any) -> Any:
        calls = 0

        def run(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            program.module.factor = 1.1 if calls >= 8 and calls % n == 0 else 1.0
            return forward(*given)

        return run

    def build() -> Workload:
        loss = lambda output, _: (output**3).mean()  # noqa: E731 - a loss
        return Workload(module=Normalized(), args=(torch.randn(64, 16),), loss=loss)

    session = opened(build, compilers={"planted": with_fault(plant)}, repeat=3)
    assert session.prepare("planted")[0] is Status.PASS
    go_on(session)
    (error,) = session.finish()[0].values()
    assert error.name == "gradient.parts.0.weight"


def test_samples_of_a_step_that_changes_its_input_are_not_compared() -> None:
    class Changes(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output = super().forward(x)
            x.add_(0.5)
            return output

    work = Workload(module=Changes(8, 8), args=(torch.randn(4, 8),))
    session = opened(lambda: work, Mode.INFERENCE, repeat=3)
    status, parity, *_ = session.prepare("eager")
    assert status is Status.PASS
    assert "each sample: eager's outputs change from step to step" in known(parity).not_checked
    go_on(session)
    assert session.finish()[0] == {}


@pytest.mark.parametrize(("factor", "fails"), [(1.0, False), (1.1, True), (float("nan"), True)])
def test_a_candidate_that_turned_wrong_is_named(factor: float, *, fails: bool) -> None:
    session = opened(lambda: workload("mlp"), repeat=3)
    session.prepare("eager")
    variant = session._variants["eager"]
    go_on(session)
    variant.use(changing(loss=factor)(variant.program, variant.program.forward()))
    changed = session.finish()[0]
    assert set(changed) == ({"eager"} if fails else set())
    for error in changed.values():
        assert str(error.failure).startswith("after the timed rounds, from before: ")


def test_a_candidate_that_fails_now_has_failed() -> None:
    session = opened(lambda: workload("mlp"), repeat=3)
    session.prepare("eager")
    session._variants["eager"].use(refusing(ValueError("late")))
    changed, metrics, failed = session.finish()
    assert (changed, set(metrics)) == ({}, {BASELINE})
    assert {n: (e.phase, e.message) for n, e in failed.items()} == {"eager": ("finish", "late")}


class Drifts(nn.Module):
    """Other values from its 20th step on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        output: torch.Tensor = self.linear(x) * (2.0 if self.steps >= 20 else 1.0)
        return output


def test_where_eager_drifts_it_alone_is_named() -> None:
    def build() -> Workload:
        return Workload(module=Drifts(), args=(torch.randn(4, 8),), loss=lambda output, _: output.mean())

    session = opened(build, repeat=3)
    session.prepare("eager")
    for _ in range(6):
        session.warm_up()
    assert set(session.finish()[0]) == {BASELINE}


@pytest.mark.parametrize(("n", "looks"), [(20, True), (100, False)])
def test_eager_takes_more_steps_only_where_they_may_explain_a_change(n: int, *, looks: bool) -> None:
    compilers = {"planted": with_fault(every(n, first=8, factor=1.1))}
    session = opened(lambda: workload("mlp"), compilers=compilers, repeat=3)
    session.prepare("planted")
    session.measure(3)
    changed = session.finish()[0]
    missing = {name: session._watch.missing_looks(variant) for name, variant in session._variants.items()}
    assert (set(changed), missing["planted"]) == ({"planted"} if looks else set(), 0)
    assert (missing[BASELINE] == 0) is looks


# -- by itself ------------------------------------------------------------------------------------
def watching(values: torch.Tensor, spread: float = 0.0, **more: torch.Tensor) -> tuple[Watch, Any]:
    watch, variant = Watch(), Mock(rewinds=False, drifts=False)
    results = {"output": values, **more}
    expected = Expected(data=FIRST_DATA, truths=[truth_of(None, results)], eager=Row())
    checks = Mock(expected=expected, truth=expected.truths[0], spread={"output": spread})
    watch.remember(variant, results, checks)
    return watch, variant


def test_gradients_are_looked_at_in_so_many_calls(monkeypatch: Patch) -> None:
    looked = Mock(return_value={})
    monkeypatch.setattr("harness.parity.watch._of_gradients", looked)
    values = drawn(64).float()
    watch, variant = watching(values, 0.0, **{"gradient.w": values})
    for steps in (1, 1, 4, *[1] * (LOOKS + 5)):  # two looks do not count: others came between
        watch.look(variant, (None, values), steps)
    assert looked.call_count == 2 + LOOKS


@pytest.mark.parametrize(("spread", "times", "seen"), [(0.0, 3, True), (1e-7, 3, False), (1e-7, 40, True)])
def test_what_eager_does_not_repeat_changes_far_more(spread: float, times: float, *, seen: bool) -> None:
    values = drawn(64).float()
    watch, variant = watching(values, spread)
    error = watch.changed(variant, {"output": values * (1.0 + times * DELTA)})
    assert (error is not None) is seen


def test_nan_that_stays_nan_is_no_change() -> None:
    broken = drawn(64).float()
    broken[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    watch, variant = watching(broken)
    assert watch.changed(variant, {"output": broken.clone()}) is None
    for other in (drawn(64).float(), broken.double()):
        assert watch.changed(variant, {"output": other}) is not None
    assert watch.changed(variant, {}) is not None


@pytest.mark.parametrize("damage", [lambda x: x[:, 3::16].add_(1.0), lambda x: x[-30:].zero_()])
def test_no_pattern_escapes_the_sample_of_a_large_output(damage: Callable[[torch.Tensor], object]) -> None:
    values = drawn((256, 256)).float()
    assert values.numel() > ELEMENTS
    watch, variant = watching(values)
    wrong = values.clone()
    damage(wrong)
    for place in range(LOOKS):
        assert watch.missing_looks(variant) == LOOKS - place
        watch.look(variant, (None, wrong if place == 7 else values))
        assert (watch.changed_in_rounds(variant) is not None) is (place >= 7)
    assert watch.missing_looks(variant) == 0


def test_samples_of_several_steps_are_compared_with_each_other_and_end_a_row_of_looks() -> None:
    """Each step of a sample may draw other random numbers, and a rare fault may be in one of them."""
    values = drawn(64).float()
    watch, variant = watching(values)
    watch.look(variant, (None, values), 1)
    watch.look(variant, (None, values * 2), 4)
    watch.look(variant, (None, values * 2), 4)
    assert watch.changed_in_rounds(variant) is None
    assert watch.missing_looks(variant) == LOOKS
    watch.look(variant, (None, values), 4)
    assert watch.changed_in_rounds(variant) is not None
    watch.look(Mock(), (None, values))  # nobody has remembered it
