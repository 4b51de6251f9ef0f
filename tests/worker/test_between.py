"""What one environment exports to another, and how their eager results are compared."""

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness.parity.between import export, imported
from harness.schema import Environment, Job, Mode, Parity, Protocol, Status
from harness.worker.session import Session
from harness.workload import Workload
from tests.factories import known, make_job
from tests.worker.planted import silent

HERE = Environment(name="here", python="python", asked="here")


# -- a workload -----------------------------------------------------------------


class Model(nn.Module):
    """Linear and normalized; another version may have another default of ``eps``."""

    def __init__(self, eps: float = 1e-5, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.norm = nn.BatchNorm1d(width, eps=eps)
        self.last = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        hidden = nn.functional.gelu(self.norm(self.first(x)))
        found: torch.Tensor = self.last(hidden)
        return found if scale is None else found * scale


def workload(seed: int, module: nn.Module | None = None) -> Workload:
    torch.manual_seed(seed)
    made = module or Model()
    return Workload(
        module=made,
        args=(torch.randn(16, 8),),
        kwargs={"scale": torch.rand(1)},
        target=torch.randint(0, 4, (16,)),
        loss=nn.functional.cross_entropy,
    )


def test_weights_and_inputs_are_imported(tmp_path: Path) -> None:
    first, second = workload(1), workload(2)
    first.args[0].requires_grad_(requires_grad=False)
    second.args[0].requires_grad_()
    export(tmp_path / "x", first, None, 4096.0)
    found, taken = imported(tmp_path / "x", second)
    assert (found.problem, found.loss_scale) == ("", 4096.0)
    for name, value in first.module.state_dict().items():
        assert torch.equal(taken.module.state_dict()[name], value)
    assert torch.equal(taken.args[0], first.args[0])
    assert torch.equal(taken.kwargs["scale"], first.kwargs["scale"])
    assert torch.equal(taken.target, first.target)
    assert taken.args[0].requires_grad  # as it was here


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (
            lambda: Model(width=8),
            "parameter first.weight is float32[16, 8] in the reference environment, flo",
        ),
        (lambda: nn.Sequential(nn.Linear(8, 4)), "only the reference environment has parameter first.bias"),
    ],
)
def test_another_model_is_said_to_be_one(
    tmp_path: Path, module: Callable[[], nn.Module], sentence: str
) -> None:
    export(tmp_path / "x", workload(1), None)
    problem = imported(tmp_path / "x", workload(2, module()))[0].problem
    assert sentence in problem
    assert problem.startswith("another model: ")


def test_complex_buffers_travel(tmp_path: Path) -> None:
    def make(seed: int) -> Workload:
        found = workload(seed)
        found.module.register_buffer("angles", torch.polar(torch.ones(3), torch.randn(3)))
        return found

    first = make(1)
    export(tmp_path / "x", first, None)
    _, taken = imported(tmp_path / "x", make(2))
    assert torch.equal(taken.module.get_buffer("angles"), first.module.get_buffer("angles"))


# -- two sessions ---------------------------------------------------------------


def job(mode: Mode = Mode.TRAINING, dtype: str = "float32", **protocol: Any) -> Job:
    settings = Protocol(min_sample_s=0.0, threads=1, **protocol)
    return make_job(mode=mode, dtype=dtype, candidates=(), protocol=settings, environments=(HERE,))


def two_sessions(
    folder: Path, of: Job, theirs: Callable[[], Workload], ours: Callable[[], Workload]
) -> tuple[Session, Session]:
    """The reference environment's, and one that imports its weights."""
    reference = Session(of, silent, lambda _: theirs())
    reference.open()
    reference.export(folder / "x")
    other = Session(of, silent, lambda _: ours())
    other.open(folder / "x")
    return reference, other


def agreement(
    folder: Path, of: Job, theirs: Callable[[], Workload], ours: Callable[[], Workload]
) -> tuple[Parity, str]:
    _, other = two_sessions(folder, of, theirs, ours)
    _, found, notes = other.cross_parity()
    return known(found), "".join(notes)


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.INFERENCE])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_two_environments_of_one_torch_agree(tmp_path: Path, mode: Mode, dtype: str) -> None:
    found, note = agreement(tmp_path, job(mode, dtype), lambda: workload(1), lambda: workload(2))
    assert found.failed == 0
    assert found.reference == "fp64"
    assert found.tensors > (5 if mode is Mode.TRAINING else 0)
    assert note == ""


def test_the_reference_environment_chooses_the_scale_of_float16s_loss(tmp_path: Path) -> None:
    def louder() -> Workload:
        return replace(workload(1), loss=lambda out, target: 50 * nn.functional.cross_entropy(out, target))

    both = two_sessions(tmp_path, job(dtype="float16"), louder, lambda: workload(2))
    scales = [one._bench.loss_scale for one in both]
    assert 1.0 < scales[0] == scales[1] < 2.0**12  # its own would be larger


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.INFERENCE])
def test_another_computation_is_seen(tmp_path: Path, mode: Mode) -> None:
    found, _ = agreement(tmp_path, job(mode), lambda: workload(1), lambda: workload(2, Model(eps=0.05)))
    assert found.failed > 0
    assert known(found.worst).failure is not None


class Unsteady(Model):
    """Adds what no seed decides."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        noise = torch.rand(1, generator=torch.Generator().manual_seed(time.perf_counter_ns()))
        return super().forward(x, scale) + noise


def test_an_unsteady_eager_cannot_be_judged(tmp_path: Path) -> None:
    of = job(Mode.INFERENCE)
    for theirs, ours, judged in ((Model(), Model(), True), (Model(), Unsteady(), False)):
        loads = [lambda m=module: workload(1, m) for module in (theirs, ours)]
        _, other = two_sessions(tmp_path, of, loads[0], loads[1])
        status, _, _ = other.cross_parity()
        assert status is (Status.PASS if judged else Status.EAGER_TWO_RUNS_DIFFER)


def test_another_model_fails_with_its_sentence(tmp_path: Path) -> None:
    found, _ = agreement(tmp_path, job(), lambda: workload(1), lambda: workload(2, Model(width=8)))
    assert found.failed == 1
    assert str(known(found.worst).failure).startswith("another model: parameter first.weight")


class Rough(Model):
    """Rounds otherwise, by so much."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        made = super().forward(x, scale)
        return made * (1 + self.size * torch.sin(1e4 * made))


@pytest.mark.parametrize(("size", "fails"), [(2e-7, False), (1e-3, True)])
def test_other_roundings_are_no_fault(tmp_path: Path, size: float, *, fails: bool) -> None:
    of = job(Mode.INFERENCE)
    found, _ = agreement(tmp_path, of, lambda: workload(1), lambda: workload(2, Rough(size)))
    assert bool(found.failed) is fails
    if fails:
        words = str(known(known(found).worst).failure)
        assert "noisy eager: " in words
        assert words.endswith("eager is nearer to fp64")


class Talkative(Model):
    """A later version, which returns more."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> Any:
        return {"logits": super().forward(x, scale), "hidden": x}


class Terse(Model):
    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> Any:
        return {"logits": super().forward(x, scale)}


def test_an_output_that_only_one_returns_is_a_note(tmp_path: Path) -> None:
    def of(module: nn.Module, seed: int) -> Workload:
        return replace(
            workload(seed, module), loss=lambda out, y: nn.functional.cross_entropy(out["logits"], y)
        )

    found, note = agreement(tmp_path, job(), lambda: of(Terse(), 1), lambda: of(Talkative(), 2))
    assert found.failed == 0
    assert note == "not compared between environments, because only one has them: output.hidden"


def test_without_parity_there_is_nothing_to_agree_on(tmp_path: Path) -> None:
    _, other = two_sessions(tmp_path, job(accuracy=False), lambda: workload(1), lambda: workload(2))
    assert other.cross_parity()[1:] == (None, ())


@pytest.fixture
def session() -> Session:
    ready = Session(job(), silent, lambda _: workload(1))
    ready.open()
    ready.warm_up()
    return ready


def test_a_turn_begins_with_a_sample_that_is_not_timed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = session._variants["baseline"]
    steps: list[int] = []
    whole = variant.step

    def counted() -> Any:
        steps.append(1)
        return whole()

    monkeypatch.setattr(variant, "step", counted)
    session.take_turn(3)
    assert len(steps) == 6  # three for nothing, three timed
    session.take_turn(3)
    assert len(steps) == 12
    session.finish()


def test_steps_per_sample_can_be_given(session: Session) -> None:
    rounds, recompiled = session.take_turn(3)
    assert len(rounds) == 1
    assert recompiled == {}
    session.take_turn(2)
    assert not gc.isenabled()  # also between rounds: others take theirs meanwhile
    session.finish()
    assert gc.isenabled()


class Scaled(nn.Module):
    def __init__(self, table: nn.Embedding, by: float) -> None:
        super().__init__()
        self.table = table
        self.by = by

    def forward(self, x: torch.Tensor) -> Any:
        return self.table(x) * self.by


def test_generation_goes_on_with_the_reference_s_tokens(tmp_path: Path) -> None:
    """A language model of one table, whose next choice depends on the token before it."""

    def drive(call: Any, module: Any, args: Any, lap: Any, forced: Any) -> dict[str, torch.Tensor]:
        token, chosen, logits = args[0], [], []
        for place in range(4):
            found = call(token)
            logits.append(found)
            chosen.append(found.argmax(-1))
            token = chosen[-1] if forced is None else forced[:, place]
            if place == 0:
                lap()
        return {"tokens": torch.stack(chosen, 1), "logits": torch.stack(logits, 1)}

    def make(seed: int, off: float = 0.0) -> Workload:
        torch.manual_seed(seed)
        table = nn.Embedding(11, 11)
        with torch.no_grad():
            table.weight.mul_(3.0)
        module = Scaled(table, 1 + off)
        return Workload(module=module, args=(torch.randint(0, 11, (2,)),), drive=drive)

    of = job(Mode.GENERATE)
    found, _ = agreement(tmp_path, of, lambda: make(1), lambda: make(2))
    assert found.failed == 0
    wrong, _ = agreement(tmp_path, of, lambda: make(1), lambda: make(2, 0.05))
    assert wrong.failed > 0
