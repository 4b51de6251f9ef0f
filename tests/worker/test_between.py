"""What one environment exports to another, and how their eager results are compared."""

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness.parity.between import export, imported
from harness.parity.rule import REFUSED
from harness.schema import Environment, Job, Mode, Parity, Protocol, Status
from harness.worker.session import Session
from harness.workload import Workload
from tests.accelerator import before_each_step
from tests.factories import known, make_job
from tests.worker.planted import Of, silent

HERE = Environment(name="here", python="python", asked="here")


# -- a workload -----------------------------------------------------------------
class Model(nn.Module):
    """Linear and normalized; another version may have another ``eps``, or change its output and input."""

    def __init__(
        self, eps: float = 1e-5, width: int = 16, change: Callable[..., Any] = lambda output, x: output
    ) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.norm = nn.BatchNorm1d(width, eps=eps)
        self.last = nn.Linear(width, 4)
        self.change = change

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> Any:
        hidden = nn.functional.gelu(self.norm(self.first(x)))
        return self.change(self.last(hidden) * scale, x)


def workload(seed: int, module: nn.Module | None = None) -> Workload:
    torch.manual_seed(seed)
    return Workload(
        module=module or Model(),
        args=(torch.randn(16, 8),),
        kwargs={"scale": torch.rand(1)},
        target=torch.randint(0, 4, (16,)),
        loss=nn.functional.cross_entropy,
    )


Build = Callable[[], Workload]
FIRST, SECOND = partial(workload, 1), partial(workload, 2)


def test_weights_and_inputs_are_imported(tmp_path: Path) -> None:
    first, second = workload(1), workload(2)
    first.args[0].requires_grad_(requires_grad=False)
    second.args[0].requires_grad_()
    export(tmp_path / "x", first, None, 4096.0)
    parcel, taken = imported(tmp_path / "x", second)
    assert (parcel.problem, parcel.loss_scale) == ("", 4096.0)
    for name, value in first.module.state_dict().items():
        assert torch.equal(taken.module.state_dict()[name], value)
    assert torch.equal(taken.args[0], first.args[0])
    assert torch.equal(taken.kwargs["scale"], first.kwargs["scale"])
    assert torch.equal(taken.target, first.target)
    assert taken.args[0].requires_grad  # as it was here


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (lambda: Model(width=8), "parameter first.weight is float32[16, 8] in the reference environment"),
        (lambda: nn.Sequential(nn.Linear(8, 4)), "only the reference environment has parameter first.bias"),
    ],
)
def test_another_model_is_called_one(tmp_path: Path, module: Callable[[], nn.Module], sentence: str) -> None:
    export(tmp_path / "x", workload(1), None)
    problem = imported(tmp_path / "x", workload(2, module()))[0].problem
    assert sentence in problem
    assert problem.startswith("another model: ")


def test_complex_buffers_travel(tmp_path: Path) -> None:
    def make(seed: int) -> Workload:
        work = workload(seed)
        work.module.register_buffer("angles", torch.polar(torch.ones(3), torch.randn(3)))
        return work

    first = make(1)
    export(tmp_path / "x", first, None)
    _, taken = imported(tmp_path / "x", make(2))
    assert torch.equal(taken.module.get_buffer("angles"), first.module.get_buffer("angles"))


# -- two sessions ---------------------------------------------------------------
def job(mode: Mode = Mode.TRAINING, dtype: str = "float32", **protocol: Any) -> Job:
    settings = Protocol(min_sample_s=0.0, threads=1, **protocol)
    return make_job(mode=mode, dtype=dtype, candidates=(), protocol=settings, environments=(HERE,))


def two_sessions(
    folder: Path, of: Job, ours: Build = SECOND, theirs: Build = FIRST
) -> tuple[Session, Session]:
    """The reference environment's, and one that imports its weights."""
    reference = Session(of, silent, lambda _: theirs())
    reference.open()
    reference.export(folder / "x")
    other = Session(of, silent, lambda _: ours())
    other.open(folder / "x")
    return reference, other


def agreement(folder: Path, of: Job, ours: Build = SECOND, theirs: Build = FIRST) -> tuple[Parity, str]:
    _, other = two_sessions(folder, of, ours, theirs)
    _, parity, notes = other.cross_parity()
    return known(parity), "".join(notes)


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.INFERENCE])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.series
def test_two_environments_of_one_torch_agree(tmp_path: Path, mode: Mode, dtype: str) -> None:
    parity, note = agreement(tmp_path, job(mode, dtype))
    assert parity.failed == 0
    assert parity.reference == "fp64"
    assert parity.tensors > (5 if mode is Mode.TRAINING else 0)
    assert note == ""


@pytest.mark.slow
def test_the_reference_environment_chooses_the_scale_of_float16s_loss(tmp_path: Path) -> None:
    def louder() -> Workload:
        return replace(workload(1), loss=lambda out, target: 50 * nn.functional.cross_entropy(out, target))

    both = two_sessions(tmp_path, job(dtype="float16"), theirs=louder)
    scales = [session._bench.loss_scale for session in both]
    assert 1.0 < scales[0] == scales[1] < 2.0**12  # its own would be larger


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.INFERENCE])
@pytest.mark.series
def test_another_computation_is_seen(tmp_path: Path, mode: Mode) -> None:
    parity, _ = agreement(tmp_path, job(mode), lambda: workload(2, Model(eps=0.05)))
    assert parity.failed > 0
    assert known(parity.worst).failure is not None


def test_a_noisy_run_that_the_reference_s_model_refuses_hides_no_fault(tmp_path: Path) -> None:
    reference = Session(job(Mode.INFERENCE), silent, lambda _: FIRST())
    reference.open()
    checks = known(reference._checks)
    noise = {name: [REFUSED, *draws[1:]] for name, draws in checks.truth.noise.items()}
    checks.truth = replace(checks.truth, noise=noise)
    reference.export(tmp_path / "x")
    other = Session(job(Mode.INFERENCE), silent, lambda _: workload(2, Model(eps=0.05)))
    other.open(tmp_path / "x")
    assert other.cross_parity()[0] is Status.FAIL_ACCURACY


def with_noise(output: torch.Tensor, _: object) -> torch.Tensor:
    """Adds what no seed decides."""
    return output + torch.rand(1, generator=torch.Generator().manual_seed(time.perf_counter_ns()))


@pytest.mark.slow
def test_an_unsteady_eager_cannot_be_judged(tmp_path: Path) -> None:
    for model, expected in ((Model(), Status.PASS), (Model(change=with_noise), Status.EAGER_TWO_RUNS_DIFFER)):
        _, other = two_sessions(tmp_path, job(Mode.INFERENCE), partial(workload, 1, model))
        assert other.cross_parity()[0] is expected


@pytest.mark.slow
def test_an_overflow_in_both_environments_cannot_be_judged(tmp_path: Path) -> None:
    def infinite(seed: int) -> Workload:
        return workload(seed, Model(change=lambda output, _: output * torch.inf))

    _, other = two_sessions(tmp_path, job(Mode.INFERENCE), partial(infinite, 2), partial(infinite, 1))
    status, parity, _ = other.cross_parity()
    assert status is Status.CANNOT_JUDGE
    assert "overflowed" in known(parity).unjudged


@pytest.mark.parametrize(("size", "fails"), [(2e-7, False), (1e-3, True)])
@pytest.mark.slow
def test_other_roundings_are_no_fault(tmp_path: Path, size: float, *, fails: bool) -> None:
    rough = Model(change=lambda output, _: output * (1 + size * torch.sin(1e4 * output)))
    parity, _ = agreement(tmp_path, job(Mode.INFERENCE), lambda: workload(2, rough))
    assert bool(parity.failed) is fails
    if fails:
        words = str(known(known(parity).worst).failure)
        assert "noisy eager: " in words
        assert words.endswith("eager is nearer to fp64")


@pytest.mark.slow
def test_an_output_that_only_one_returns_is_a_note(tmp_path: Path) -> None:
    def of(seed: int, change: Callable[..., Any]) -> Workload:
        work = workload(seed, Model(change=change))
        return replace(work, loss=lambda out, y: nn.functional.cross_entropy(out["logits"], y))

    terse = partial(of, 1, lambda output, _: {"logits": output})
    talkative = partial(of, 2, lambda output, x: {"logits": output, "hidden": x})
    parity, note = agreement(tmp_path, job(), talkative, terse)
    assert parity.failed == 0
    assert note == "not compared between environments, because only one has them: output.hidden"


def test_without_parity_there_is_nothing_to_agree_on(tmp_path: Path) -> None:
    _, other = two_sessions(tmp_path, job(accuracy=False))
    assert other.cross_parity()[1:] == (None, ())


def test_a_turn_has_the_steps_that_are_asked_for_after_as_many_that_are_not_timed() -> None:
    session = Session(job(), silent, lambda _: workload(1))
    session.open()
    session.warm_up()
    steps: list[int] = []
    before_each_step(session._variants["baseline"], lambda: steps.append(1))
    rounds, recompiled = session.take_turn(3)
    assert (len(rounds), recompiled, len(steps)) == (1, {}, 3 + 3)
    session.take_turn(3)
    assert len(steps) == 2 * (3 + 3)
    session.take_turn(2)
    assert len(steps) == 2 * (3 + 3) + 2 + 2
    assert not gc.isenabled()  # also between rounds: others take theirs meanwhile
    session.finish()
    assert gc.isenabled()


def test_generation_goes_on_with_the_reference_s_tokens(tmp_path: Path) -> None:
    """A language model of one table, whose next choice depends on the token before it."""

    def drive(call: Any, module: Any, args: Any, lap: Any, forced: Any) -> dict[str, torch.Tensor]:
        token, chosen, logits = args[0], [], []
        for place in range(4):
            step_logits = call(token)
            logits.append(step_logits)
            chosen.append(step_logits.argmax(-1))
            token = chosen[-1] if forced is None else forced[:, place]
            if place == 0:
                lap()
        return {"tokens": torch.stack(chosen, 1), "logits": torch.stack(logits, 1)}

    def make(seed: int, off: float = 0.0) -> Workload:
        torch.manual_seed(seed)
        table = nn.Embedding(11, 11)
        with torch.no_grad():
            table.weight.mul_(3.0)
        module = Of(lambda x, table: table(x) * (1 + off), table)
        return Workload(module=module, args=(torch.randint(0, 11, (2,)),), drive=drive)

    of = job(Mode.GENERATE)
    parity, _ = agreement(tmp_path, of, lambda: make(2), lambda: make(1))
    assert parity.failed == 0
    wrong, _ = agreement(tmp_path, of, lambda: make(2, 0.05), lambda: make(1))
    assert wrong.failed > 0
