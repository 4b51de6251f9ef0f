"""What is right and rounds differently passes, what is wrong beside a kink fails, and the rest is named."""

import csv
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.controls import CONTROLS
from harness.parity.calls import first_calls
from harness.parity.check import COLUMNS, FINE, Check
from harness.program import Program
from harness.schema import Mode, Status
from harness.timing.workbench import Workbench
from harness.workload import Workload
from runner.store.figures import figures_file, read_figures
from tests.factories import Patch, known, make_job, make_record, sampled
from tests.worker.planted import (
    Forward,
    Of,
    Verdict,
    changing,
    failing,
    judged,
    opened,
    right,
    right_graph,
    unopened,
    with_fault,
    workload,
)

KINKED = ("conv", "mlp")  # ReLU and max pool; biases before normalizations, whose gradients cancel


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # torch says it where oneDNN is switched off
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", KINKED)
@pytest.mark.series
def test_other_layouts_kernels_and_threads_pass(name: str, dtype: str) -> None:
    session = opened(lambda: workload(name), dtype=dtype)
    judged_ones = 0
    for change, surroundings in CONTROLS.values():
        variant = session._bench.variant()
        if not change(variant, session._job):
            continue
        variant.remember()
        with surroundings():
            check = Check(known(session._checks), variant, with_fault(right)(variant.program))
            check.run(first_calls(session._bench, variant, []))
        status, parity, _ = check.verdict()
        assert status is Status.PASS, parity.worst
        judged_ones += 1
    assert judged_ones == len(CONTROLS) - 1  # one is for images, one for what is none


class AtTheKink(nn.Module):
    """Its first unit is zero for the first row, up to a rounding: whether ReLU lets it pass is chance."""

    def __init__(self, x: torch.Tensor) -> None:
        super().__init__()
        self.lower, self.upper = nn.Linear(32, 16), nn.Linear(16, 4)
        self.backwards = False
        with torch.no_grad():
            self.lower.bias[0] -= self.lower(x)[0, 0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.lower.weight
        if self.backwards:  # another order of the same sums
            x, weight = x.flip(-1), weight.flip(-1)
        hidden = nn.functional.relu(nn.functional.linear(x, weight, self.lower.bias))
        output: torch.Tensor = self.upper(hidden)
        return output


def at_the_kink(seed: int) -> Workload:
    torch.manual_seed(seed)
    x, target = torch.randn(64, 32), torch.randint(0, 4, (64,))
    return Workload(module=AtTheKink(x), args=(x,), target=target, loss=nn.functional.cross_entropy)


def backwards(program: Program, forward: Forward) -> Forward:
    assert isinstance(program.module, AtTheKink)
    program.module.backwards = True
    return forward


def wrong_gradient(program: Program, forward: Forward) -> Forward:
    """A percent, in a tensor behind the kink, besides the other order."""
    assert isinstance(program.module, AtTheKink)
    weight: Any = program.module.lower.weight  # torch's register_hook has no types
    weight.register_hook(lambda gradient: gradient * 1.01)
    return backwards(program, forward)


@pytest.mark.slow
def test_another_order_of_a_sum_at_a_kink_is_sensitive_and_no_fault() -> None:
    def verdict(seed: int) -> Verdict:
        return judged(with_fault(backwards), partial(at_the_kink, seed))

    parities = {seed: (status, parity) for seed in range(8) for status, parity, _ in (verdict(seed),)}
    assert all(status is Status.PASS for status, _ in parities.values()), parities
    sensitive = [parity.sensitive_tensors for _, parity in parities.values() if parity.sensitive_tensors]
    assert all(set(names) <= {"gradient.lower.weight", "gradient.lower.bias"} for names in sensitive)
    assert sensitive  # else there was nothing to tell


@pytest.mark.slow
def test_a_fault_next_to_a_kink_is_one() -> None:
    for seed in range(2):
        worst = failing(judged(with_fault(wrong_gradient), partial(at_the_kink, seed)))
        words = str(worst.failure)
        assert worst.name.startswith("gradient.lower")
        assert "noisy eager: " in words
        assert words.endswith("eager is nearer to fp64")


def test_a_pass_says_how_fine_it_is() -> None:
    status, parity, _ = judged(right_graph, lambda: workload("tokens"), Mode.INFERENCE)
    assert status is Status.PASS
    assert (parity.rule, parity.steps, parity.fine, parity.failed) == ("noise", 6, 1.0, 0)
    assert parity.resolution_outputs == parity.resolution_largest == 1e-4
    assert parity.resolution_gradients is None
    assert known(parity.used) <= 1.0
    worst = known(parity.worst)
    assert None not in (worst.noisy_rmse, worst.eager_rmse, worst.candidate_rmse)


# -- the table of figures -------------------------------------------------------------------------
def status_of(file: Path) -> Status:
    """Of a compiler whose loss and gradients are 2 % too large, with its figures in ``file``."""
    compilers = {"wrong": with_fault(changing(loss=1.02))}
    return opened(lambda: workload("mlp"), compilers=compilers, performance=False).prepare("wrong", file)[0]


@pytest.mark.slow
def test_every_tensor_and_call_has_its_figures(tmp_path: Path) -> None:
    job = make_job()
    case = tmp_path / "cases" / job.key
    case.mkdir(parents=True)
    assert status_of(case / figures_file("wrong")) is Status.FAIL_ACCURACY
    with (case / figures_file("wrong")).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert {row["call"] for row in rows} == {"1", "4"}  # the others repeat these
    outcomes = {row["tensor"]: row["outcome"] for row in rows if row["call"] == "1"}
    assert outcomes.pop("output") == "pass"
    assert set(outcomes.values()) == {"fail"}
    ((_, tensors),) = read_figures(tmp_path, [make_record(job, "wrong")]).items()
    assert [tensor.tensor for tensor in tensors][-2:] == ["output", "loss"]
    off = {tensor.tensor: tensor.candidate or 0.0 for tensor in tensors}
    assert 0.0199 < off["gradient.0.weight"] < 0.0201
    assert off["output"] < 1e-6


@pytest.mark.slow
def test_a_table_that_cannot_be_written_costs_no_verdict(tmp_path: Path) -> None:
    assert status_of(tmp_path / "missing" / "x.csv") is Status.FAIL_ACCURACY


# -- where eager's own results allow no judgment --------------------------------------------------
@pytest.mark.parametrize(("dtype", "scaled"), sampled(3, ("float16", "amp_float16"), (True, False)))
@pytest.mark.series
def test_small_gradients_of_float16_have_a_scale(monkeypatch: Patch, dtype: str, *, scaled: bool) -> None:
    """Those of the outputs are 6e-9 here, below the smallest number of float16. Unscaled, zeros pass."""
    if not scaled:
        monkeypatch.setattr(Workbench, "scale_loss", lambda _: None)

    def build() -> Workload:
        loss = lambda out, _: 1e-5 * out.float().square().mean()  # noqa: E731 - a loss
        return Workload(module=nn.Linear(32, 32), args=(torch.randn(64, 32),), loss=loss)

    def zeros(_: Program, forward: Forward) -> Forward:
        def run(*given: Any) -> tuple[Any, Any]:
            loss, output = forward(*given)
            return loss * 0 + loss.detach(), output

        return run

    compilers = {"same": with_fault(right), "zeros": with_fault(zeros)}
    ready = unopened(build, dtype=dtype, compilers=compilers, performance=False)
    _, environment = ready.open()
    statuses = {name: ready.prepare(name)[0] for name in compilers}
    assert environment["loss_scale"] == (2.0**12 if scaled else 1.0)
    assert (statuses["zeros"] is Status.FAIL_ACCURACY) is scaled
    assert statuses["same"] is Status.PASS or not scaled


def with_output(
    change: Callable[[torch.Tensor], Any], factor: float = 1.0, dtype: str = "float32"
) -> Verdict:
    """Of a product, of which ``change`` makes the outputs. The candidate's first is wrong by ``factor``."""

    def wrong(output: Any) -> Any:
        first, *rest = output if isinstance(output, tuple) else (output,)
        return (first * factor, *rest) if rest else first * factor

    def build() -> Workload:
        module = Of(lambda x, line: change(line(x)), nn.Linear(32, 32))
        return Workload(module=module, args=(torch.randn(64, 32),))

    return judged(with_fault(changing(wrong)), build, Mode.INFERENCE, dtype)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_tensor_without_a_finite_value_is_no_pass(value: float) -> None:
    status, parity, _ = with_output(lambda x: (x, x * 0 + value))
    assert status is Status.CANNOT_JUDGE
    assert parity.unjudged == "eager's output.1 overflowed, or held NaN or infinities only"
    assert parity.failed == 0
    assert with_output(lambda x: (x, x * 0 + value), 1.1)[0] is Status.FAIL_ACCURACY


def test_an_overflow_of_eager_alone_is_no_pass_and_meant_infinities_are_one() -> None:
    status, parity, _ = with_output(lambda x: (x, x * 1e5), dtype="float16")
    assert status is Status.CANNOT_JUDGE
    assert parity.unjudged.startswith("eager's output.1 overflowed")
    masked = with_output(lambda x: x.masked_fill(torch.ones(32, 32).triu(1).bool()[:1], -math.inf))
    assert masked[0] is Status.PASS


def cancels(x: torch.Tensor) -> torch.Tensor:
    """Nothing but roundings."""
    return (x * 3 + 1) - (x + x + x) - 1


@pytest.mark.parametrize(
    ("noise", "factor", "status"),
    [
        (1, 1.0, Status.PASS),
        (4, 1.0, Status.CANNOT_JUDGE),
        (4, 1.01, Status.FAIL_ACCURACY),
        (4, math.nan, Status.FAIL_ACCURACY),
    ],
)
def test_a_fifth_may_be_noise_and_a_clear_error_fails_all_the_same(
    noise: int, factor: float, status: Status
) -> None:
    def outputs(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x, *(x * n for n in range(2, 8 - noise)), *(cancels(x + n) for n in range(noise)))

    outcome, parity, _ = with_output(outputs, factor)
    assert outcome is status
    assert len(parity.noise_tensors) == noise
    assert bool(parity.unjudged) is (noise > 1)
    if status is Status.CANNOT_JUDGE:
        assert parity.unjudged.startswith("4 of 7 outputs of eager change by a third or more")


def test_what_is_noise_on_other_data_alone_is_named_and_does_not_widen_the_resolution() -> None:
    x = torch.randn(64, 32)

    def outputs(x_given: torch.Tensor, line: nn.Linear) -> tuple[torch.Tensor, torch.Tensor]:
        y = line(x_given)
        return y, torch.where(x_given[0, 0] == x[0, 0], y, cancels(y))

    def build() -> Workload:
        return Workload(module=Of(outputs, nn.Linear(32, 32)), args=(x.clone(),))

    status, parity, _ = judged(right_graph, build, Mode.INFERENCE)
    assert status is Status.PASS
    assert parity.noise_tensors == ()
    assert parity.resolution_largest == 1e-4
    assert parity.not_checked == ("output.1 on other data: noisy eager changes it by more than 30%",)


def test_a_loss_that_cancels_wholly_is_no_pass() -> None:
    status, parity, _ = judged(with_fault(right), lambda: workload("norm_mean"))
    assert status is Status.CANNOT_JUDGE
    why = "eager's loss changes by more than its third when its operations round differently"
    assert parity.unjudged.startswith(why)
    assert not status.passed
    assert status.counted


@pytest.mark.parametrize(
    ("also_fp64", "status"), [(False, Status.PASS), (True, Status.EAGER_TWO_RUNS_DIFFER)]
)
def test_eagers_runs_may_differ_more_where_those_of_fp64_do_not(*, also_fp64: bool, status: Status) -> None:
    """Then it is roundings that differ: a card adds in any order."""
    generator = torch.Generator().manual_seed(0)

    def forward(x: torch.Tensor, line: nn.Module) -> Any:
        loud = 0.02 * (also_fp64 or x.dtype is not torch.float64)
        return line(x) * (1.0 + loud * torch.randn(x.shape[0], 8, generator=generator))

    work = Workload(module=Of(forward, nn.Linear(32, 8)), args=(torch.randn(32, 32),))
    outcome, parity, _ = judged(with_fault(right), lambda: work, Mode.INFERENCE)
    assert known(parity).eager_spread > FINE
    assert outcome is status
