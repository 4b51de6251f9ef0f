"""A rounding that crosses a kink is no fault; a fault beside a kink is one."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import pytest
import torch
from torch import nn

from harness.backends import load_backend
from harness.parity.distance import BLOCK, ROW
from harness.parity.reference import Reference, make_reference, rule_for
from harness.parity.rule import compare
from harness.parity.sensitivity import RUNS, Kinks, perturbed_references, perturbed_weights
from harness.parity.steps import MOST, sampled
from harness.precision import precision
from harness.program import Program
from harness.schema import Case, Job, Mode, Parity, Protocol, Status
from harness.timing.step import Variant
from harness.timing.workbench import Workbench
from harness.workload import Workload
from tests.worker.planted import CPU, Backend, Trial, results, trial, wrong_by
from tests.worker.test_other_data import Fault, Forward, judged, right, with_fault

ROWS = 256


class Sums(nn.Module):
    """A product whose sums can be taken in another order."""

    def __init__(self, units: int, outputs: int) -> None:
        super().__init__()
        self.lower = nn.Linear(32, units)
        self.upper = nn.Linear(units, outputs)
        self.backwards = False

    def summed(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.lower.weight
        if self.backwards:
            x, weight = x.flip(-1), weight.flip(-1)
        return nn.functional.linear(x, weight, self.lower.bias)


class AtTheKink(Sums):
    """Its first unit is zero for the first row, up to a rounding: whether ReLU lets it pass is chance."""

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__(16, 4)
        with torch.no_grad():
            self.lower.bias[0] -= self.lower(x)[0, 0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.relu(self.summed(x))
        return nn.functional.linear(hidden, self.upper.weight, self.upper.bias)


def at_the_kink(seed: int) -> Trial:
    return Trial(workload=at_the_kink_of(AtTheKink, seed), dtype="float32", mode=Mode.TRAINING)


def at_the_kink_of(model: type[AtTheKink], seed: int) -> Workload:
    torch.manual_seed(seed)
    x, target = torch.randn(ROWS, 32), torch.randint(0, 4, (ROWS,))
    return Workload(module=model(x), args=(x,), target=target, loss=nn.functional.cross_entropy)


def perturbed(subject: Trial, reference: Reference) -> tuple[Reference, ...]:
    return perturbed_references(reference, subject.variant, results)


def judge(
    subject: Trial, backend: Backend | None = None, *, backwards: bool = False
) -> tuple[Parity, Parity]:
    """The verdicts without and with perturbed weights."""
    reference = subject.reference()
    variant = subject.variant()
    if backwards:
        module = variant.program.module
        assert isinstance(module, AtTheKink)
        module.backwards = True
    if backend is not None:
        variant.use(backend(variant.program).forward)
    found = results(variant)
    return compare(reference, found), compare(reference, found, lambda: perturbed(subject, reference))


def test_another_order_of_a_sum_at_a_kink_is_no_fault() -> None:
    fails = passes = 0
    for seed in range(60):
        plain, with_perturbed = judge(at_the_kink(seed), backwards=True)
        fails += plain.failed > 0
        passes += plain.failed > 0 and with_perturbed.failed == 0
        if plain.failed and not with_perturbed.failed:
            assert with_perturbed.sensitive_tensors
            assert set(with_perturbed.sensitive_tensors) <= {"gradient.lower.weight", "gradient.lower.bias"}
    assert fails >= 5  # else there is nothing to tell
    assert passes >= 0.9 * fails


@pytest.mark.parametrize(
    "factor", [0.0, *(pytest.param(off, marks=pytest.mark.slow) for off in (0.99, 1.01))]
)
def test_a_fault_beside_a_kink_is_one(factor: float) -> None:
    for seed in range(5):
        backend = wrong_by(factor, "addmm") if factor else wrong_by(factor, "mm", backward=True)
        plain, with_perturbed = judge(at_the_kink(seed), backend)
        assert plain.failed > 0
        assert with_perturbed.failed > 0


@pytest.mark.parametrize(
    "name", ["mlp", *(pytest.param(n, marks=pytest.mark.slow) for n in ("conv", "tokens"))]
)
@pytest.mark.parametrize("backward", [False, True])
def test_one_operation_off_by_a_hundredth_fails_beside_perturbed_weights_too(
    name: str, backward: bool
) -> None:
    part = {"mlp": "mm", "conv": "convolution", "tokens": "mm"}[name]
    subject = trial(name)
    plain, with_perturbed = judge(subject, wrong_by(1.01, part, backward=backward))
    assert plain.failed > 0
    assert with_perturbed.failed > 0


def test_where_it_would_say_nothing_nothing_is_run() -> None:
    assert len(perturbed(trial("mlp"), trial("mlp").reference())) == RUNS
    reduced = trial("mlp", "bfloat16")
    assert perturbed(reduced, reduced.reference()) == ()


def test_weights_are_left_as_they_were() -> None:
    subject = trial("mlp")
    before = {k: v.clone() for k, v in subject.workload.module.state_dict().items()}
    assert judge(subject, load_backend("aot_eager"))[1].failed == 0
    assert all(torch.equal(v, before[k]) for k, v in subject.workload.module.state_dict().items())


# -- in a session: eager, fp64 and candidate at the same perturbed weights ----------------------------


def in_session(seed: int, fault: Fault) -> Parity:
    torch.manual_seed(seed)
    work = at_the_kink(seed).workload
    return judged(with_fault(fault), lambda: work)[1]


def backwards(program: Program, forward: Forward) -> Forward:
    assert isinstance(program.module, Sums)
    program.module.backwards = True
    return forward


def wrong_gradient(program: Program, forward: Forward) -> Forward:
    """Half a percent, in the tensors next to the kink, besides the other order."""
    assert isinstance(program.module, AtTheKink)
    weight: Any = program.module.lower.weight  # torch's register_hook has no types
    weight.register_hook(lambda gradient: gradient * 1.005)
    return backwards(program, forward)


def test_a_kink_fails_in_few_runs_and_is_excused() -> None:
    plain = [judge(at_the_kink(seed), backwards=True)[0].failed > 0 for seed in range(20)]
    assert sum(plain) >= 3  # else there is nothing to excuse
    found = [in_session(seed, backwards) for seed in range(20)]
    assert sum(one.failed > 0 for one in found) <= 1
    for fails, one in zip(plain, found, strict=True):
        if fails and not one.failed:
            assert set(one.sensitive_tensors) <= {"gradient.lower.weight", "gradient.lower.bias"}
            assert one.sensitive_tensors


class Counting(AtTheKink):
    """The mean of its inputs runs along, from step to step."""

    running: torch.Tensor

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__(x)
        self.register_buffer("running", torch.zeros(x.shape[-1]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.running.mul_(0.9).add_(0.1 * x.mean(0))
        return super().forward(x)


def test_after_the_perturbed_runs_the_steps_in_a_row_continue_from_their_own_buffers() -> None:
    excused = 0
    for seed in range(20):
        found = judged(with_fault(backwards), partial(at_the_kink_of, Counting, seed))[1]
        assert "buffer.running" not in found.sensitive_tensors
        assert found.worst is None or found.worst.name != "buffer.running" or not found.failed
        excused += bool(found.sensitive_tensors)
    assert excused >= 3  # else no perturbed run came between


def test_a_fault_next_to_a_kink_fails_in_all_runs() -> None:
    for seed in range(6):
        found = in_session(seed, wrong_gradient)
        assert found.failed > 0
        assert "gradient.lower.weight" not in found.sensitive_tensors


class Amplifier(Sums):
    """A chaotic map makes a rounding thousands of times as large, in one direction of the output."""

    def __init__(self) -> None:
        super().__init__(1, 16)
        self.factor = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.sigmoid(self.summed(x))
        for _ in range(20):
            hidden = 3.8 * hidden * (1 - hidden)
        made: torch.Tensor = self.factor * self.upper(hidden)
        return made


def amplified(seed: int, fault: Fault) -> Parity:
    """An inference step of one row."""
    torch.manual_seed(seed)
    work = Workload(module=Amplifier(), args=(torch.randn(1, 32),))
    return judged(with_fault(fault), lambda: work, Mode.INFERENCE)[1]


def two_percent(program: Program, forward: Forward) -> Forward:
    assert isinstance(program.module, Amplifier)
    program.module.factor = 1.02
    return backwards(program, forward)


def test_an_amplified_rounding_is_no_fault_in_inference() -> None:
    found = [amplified(seed, backwards) for seed in range(60)]
    excused = [one for one in found if one.sensitive_tensors]
    assert len(excused) >= 3  # else there is nothing to excuse
    assert all(one.sensitive_tensors == ("output",) for one in excused)
    assert sum(one.failed > 0 for one in found) <= 2


def test_a_fault_behind_an_amplifier_is_one() -> None:
    found = [amplified(seed, two_percent) for seed in range(10)]
    assert all(one.failed > 0 for one in found)


def test_noise_is_as_loud_as_the_rule_permits() -> None:
    case = Case(suite="none", name="m", mode=Mode.TRAINING, batch_size=4, published_batch_size=4)
    job = Job(case=case, device="cpu", dtype="float32", candidates=(), protocol=Protocol(threads=1))
    subject = at_the_kink(0)
    rule = rule_for("scaled", Mode.TRAINING, precision("float32", "cpu"))
    kinks = Kinks(Workbench(job, CPU, subject.workload), rule, [], ())
    louder = kinks._with_noise()
    ratios = [
        loud.known["output"].eager.rms / kinks._reference(seed).known["output"].eager.rms
        for seed, loud in enumerate(louder)
    ]
    assert len(ratios) == RUNS
    assert 1.0 < sum(ratios) / RUNS < 2.5


def roughened(tensor: torch.Tensor, size: float) -> torch.Tensor:
    return tensor * (1 + size * torch.randn(tensor.shape))


class Planned(Kinks):
    """Its candidate is wrong in these runs, without any step of a model.

    ``part``: so many elements are wrong, by the factor ``off``; ``moves``: others in each run. ``rough``,
    ``loud``: the relative random errors of the candidate, and of an eager with noise in its weights.
    """

    def __init__(
        self,
        wrong: tuple[int, ...],
        *,
        size: int = 4096,
        part: int | None = None,
        off: float = 1.05,
        moves: bool = False,
        rough: float = 0.0,
        loud: float = 0.0,
        name: str = "gradient.weight",
    ) -> None:
        rule = rule_for("scaled", Mode.TRAINING, precision("float32", "cpu"))
        super().__init__(cast("Workbench", None), rule, [cast("Variant", None)] * 2, ())
        self.wrong, self.part, self.off, self.moves = wrong, part or size, off, moves
        self.rough, self.loud = rough, loud
        self.runs = 0
        truth = torch.randn(size, dtype=torch.float64)
        right = {name: truth.float()}
        self.name = name
        self.reference = make_reference({name: truth}, right, right, rule)

    def _reference(self, seed: int) -> Reference:
        return self.reference

    def _with_noise(self) -> list[Reference]:
        right = self.reference.eager[self.name]
        loud = {self.name: roughened(right, self.loud)}
        found = make_reference(self.reference.exact, loud, loud, self.reference.rule)
        return [found] * RUNS if self.loud else []

    def _results(self, _: Any, seed: int, noise_bits: int = 0) -> dict[str, torch.Tensor]:
        self.runs += not noise_bits
        right = self.reference.eager[self.name].clone()
        if seed in self.wrong:
            start = seed * self.part if self.moves else 0
            right[start : start + self.part] *= self.off
            right = roughened(right, self.rough)
        return {self.name: right}


@pytest.mark.parametrize(
    ("wrong", "runs", "passes"),
    [
        ((), 3, True),
        ((3, 4), 3, True),  # after three passes nothing is run
        ((1,), 6, True),  # after five of eight passes the rest cannot change the verdict
        ((0, 1, 2), 8, True),
        ((0, 1, 2, 3), 8, False),
        (tuple(range(8)), 8, False),
    ],
)
def test_no_run_after_the_verdict_is_sure(wrong: tuple[int, ...], runs: int, *, passes: bool) -> None:
    kinks = Planned(wrong)
    found = kinks.excused(trial("mlp").variant(), ["gradient.weight"])
    assert kinks.runs == runs
    assert bool(found) == passes


def test_the_same_wrong_blocks_in_every_run_are_a_fault() -> None:
    """Four of 64 blocks are off by a quarter of a percent: far below the limit of the whole tensor."""
    kinks = Planned(tuple(range(RUNS)), size=64 * BLOCK, part=4 * BLOCK, off=1.0025)
    assert not kinks.excused(trial("mlp").variant(), ["gradient.weight"])


class Wide(nn.Module):
    """More outputs than a sample keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cast("torch.Tensor", self.up(x))


@pytest.mark.parametrize("where", [0, -1])
def test_a_sample_without_the_wrong_place_excuses_nothing(where: int) -> None:
    """One block of 256 is wrong, which the perturbed runs' random sample does not have; or the very end."""
    count = 1024 * 256
    kept = {int(place) // BLOCK for place in sampled(torch.arange(count))}
    block = next(place for place in range(count // BLOCK) if place not in kept)
    places = slice(block * BLOCK, (block + 1) * BLOCK) if where == 0 else slice(count - 8, count)

    def wide() -> Workload:
        return Workload(module=Wide(), args=(torch.randn(1024, 16),))

    def fault(_: Program, forward: Forward) -> Forward:
        def run(*given: Any) -> tuple[Any, Any]:
            loss, output = forward(*given)
            output.view(-1)[places] *= 1.01
            return loss, output

        return run

    assert judged(with_fault(fault), wide, Mode.INFERENCE)[0] is Status.FAIL_ACCURACY
    assert judged(with_fault(right), wide, Mode.INFERENCE)[0] is Status.PASS


def test_the_worst_blocks_are_in_the_sample() -> None:
    numbers = torch.arange(100 * BLOCK + 7)
    found = sampled(numbers, (3, 90))
    assert found.numel() == MOST
    assert found[:BLOCK].equal(numbers[3 * BLOCK : 4 * BLOCK])
    assert found[BLOCK : 2 * BLOCK].equal(numbers[90 * BLOCK : 91 * BLOCK])
    assert found[-BLOCK:].equal(numbers[-BLOCK:])


@pytest.mark.parametrize(("wrong", "passes"), [(tuple(range(RUNS)), False), ((0, 5), True)])
def test_a_wrong_row_of_an_output_in_every_run_is_a_fault(wrong: tuple[int, ...], *, passes: bool) -> None:
    """One of 64 rows is off by 0.003 %. In two runs of eight, it may be another choice at a near tie."""
    kinks = Planned(wrong, part=ROW, off=1.00003, name="output")
    assert bool(kinks.excused(trial("mlp").variant(), ["output"])) is passes


def test_other_wrong_blocks_in_every_run_are_a_kink() -> None:
    kinks = Planned(tuple(range(RUNS)), size=64 * BLOCK, part=4 * BLOCK, off=1.0025, moves=True)
    assert kinks.excused(trial("mlp").variant(), ["gradient.weight"])


@pytest.mark.parametrize(
    ("rough", "off", "passes"), [(0.005, 1.0, True), (0.05, 1.0, False), (0.0, 1.005, False)]
)
def test_a_louder_eager_excuses_errors_of_its_size_and_no_factor(
    rough: float, off: float, *, passes: bool
) -> None:
    kinks = Planned(tuple(range(RUNS)), off=off, rough=rough, loud=0.005)
    assert bool(kinks.excused(trial("mlp").variant(), ["gradient.weight"])) == passes


@pytest.mark.parametrize("wide", [False, True])
def test_last_bits_change_and_come_back(*, wide: bool) -> None:
    subject = trial("mlp")
    module = subject.variant(exact=wide).program.module
    before = [p.clone() for p in module.parameters()]
    with perturbed_weights(module, 3):
        now = [p.detach().clone() for p in module.parameters()]
    for was, inside, after in zip(before, now, module.parameters(), strict=True):
        assert torch.equal(was, after)
        assert not torch.equal(was, inside)
        assert torch.allclose(was, inside, rtol=2**-10, atol=0)
        assert torch.equal(inside.float().to(inside.dtype), inside)
