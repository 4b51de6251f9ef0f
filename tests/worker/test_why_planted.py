"""Planted causes: for each cause a toy that has it, really compiled and looked at. Only times are invented.

The compiled step is 0.77x of eager. Of the settings that the look proposes, those of the planted cause bring
it back to 1x, and the others change nothing.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code

from harness.backends.settings.own_settings import CAPTURED_AS, OF_INDUCTOR, own_settings
from harness.schema import Job, Protocol, Record, Status
from runner.errors import UsageError
from runner.runs.why.asking import asked_why
from runner.runs.why.causes import causes, proposals
from runner.runs.why.causes.decomposition import OPERATORS
from runner.runs.why.explain import CAPTURE, STAGES, NoTimes, Why, with_setting
from runner.runs.why.looked import Looked
from tests.factories import make_job, make_samples
from tests.worker.planted import Of
from torchduet import compare

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("fresh_compiler")]


TRIES = 3  # a signature that compares times of the profiler may be hidden by other programs


class Again(torch.autograd.Function):
    """Two products. Its backward computes the first product again; a joint graph saves it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return (x @ w) @ w

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        return (g @ w.T) @ w.T, (x @ w).T @ g + x.T @ (g @ w.T)


def again(x: torch.Tensor, *layers: nn.Linear) -> torch.Tensor:
    for layer in layers:
        x = Again.apply(x, layer.weight)  # type: ignore[no-untyped-call]
    return x


def attention(x: torch.Tensor, *layers: nn.Linear) -> torch.Tensor:
    q, k, v = (layer(x).view(4, 128, 4, 32).transpose(1, 2) for layer in layers)
    scores = (q @ k.transpose(-2, -1)).div(32**0.5).softmax(-1)
    return torch.matmul(scores, v).transpose(1, 2)


def broken(x: torch.Tensor, first: nn.Linear, second: nn.Linear) -> Any:
    x = first(x)
    torch._dynamo.graph_break()
    return second(x)


def longer(x: torch.Tensor, layer: nn.Linear) -> Any:
    """While it is compiled, it computes eight more products, whose result it does not use."""
    more = x
    for _ in range(8 if torch.compiler.is_compiling() else 0):
        more = more @ layer.weight
    return layer(x) + more.clamp(0, 0)


def linear(n: int = 1, size: int = 64) -> list[nn.Linear]:
    return [nn.Linear(size, size) for _ in range(n)]


@dataclass(frozen=True)
class Toy:
    """A model, the shape of its input, and the candidate."""

    make: Callable[[], nn.Module]
    shape: Sequence[int]
    training: bool = False
    candidate: str = "inductor"
    threads: int = 1
    scale: float = 1.0  # of the invented times, whose eager step takes 10 ms


PLANTED = {
    "random numbers": Toy(lambda: nn.Sequential(*linear(), nn.Dropout(0.1)), (4096, 64), training=True),
    "stored masks": Toy(lambda: nn.Sequential(*linear(), nn.ReLU()), (4096, 64), training=True),
    "memory format": Toy(
        lambda: nn.Sequential(nn.Conv2d(64, 64, 7, padding=3, groups=64), nn.GELU(), nn.Conv2d(64, 128, 1)),
        (8, 64, 28, 28), training=True,
    ),
    "weights copied in every step": Toy(
        lambda: nn.Sequential(nn.Conv2d(256, 256, 3), nn.GELU(), nn.Conv2d(256, 256, 3)), (1, 256, 8, 8)
    ),
    "a decomposed operator": Toy(
        lambda: Of(lambda x: x.softmax(-1) * 2), (256, 1024)
    ),
    "attention by another kernel": Toy(lambda: Of(attention, *linear(3, 128)), (4, 128, 128)),
    "autotuning": Toy(lambda: Of(lambda x, f: f(x).sin(), *linear()), (4096, 64),
                      candidate="inductor[max_autotune=True]"),
    "freezing": Toy(lambda: Of(lambda x, f: f(x).sin(), *linear()), (4096, 64),
                    candidate="inductor[freezing=True]"),
    "saved tensors": Toy(lambda: Of(again, *linear(6)), (8192, 64), training=True),
    "threads": Toy(lambda: Of(lambda x, f: f(x).sin(), *linear()), (4096, 64), threads=2),
    "loops without vectors": Toy(lambda: Of(lambda x: x.sin().cos()), (4096, 64),
                                 candidate="inductor[cpp.simdlen=1]"),
    "graph breaks": Toy(lambda: Of(broken, *linear(2)), (4096, 64)),
    "guards": Toy(lambda: nn.Sequential(*linear(60, 2)), (2, 2), scale=0.01),
    "nothing to gain": Toy(lambda: nn.Sequential(*linear(1, 1024)), (1024, 1024)),
    "wrapper of the call": Toy(lambda: nn.Sequential(*linear(2, 4)), (4, 4), training=True,
                               candidate="aot_eager", scale=0.01),
}  # fmt: skip
ONLY_SUSPECTED = {"graph breaks", "nothing to gain", "wrapper of the call"}  # nothing removes them
CONTROLS = (
    Toy(lambda: Of(lambda x, f: nn.functional.gelu(f(x)).sin(), *linear()), (4096, 64)),
    Toy(lambda: Of(lambda x, f: nn.functional.gelu(f(x)).sin(), *linear()), (4096, 64), training=True),
    Toy(lambda: nn.LayerNorm(256), (1024, 256), training=True),
    Toy(lambda: Of(lambda x: x.exp().cumsum(-1) + x), (256, 256)),
)


@cache
def looked_at(toy: Toy) -> Record:
    """The record of the copy for looking."""
    torch.manual_seed(0)
    records: list[Record] = []

    def once(job: Job) -> Sequence[Record]:
        if not records:
            result = compare(
                toy.make(),
                torch.randn(*toy.shape),
                mode="training" if toy.training else "inference",
                compilers=job.candidates,
                dropout="keep",
                extras=job.extras,
                protocol=replace(job.protocol, threads=toy.threads),
            )
            records.extend(result.records)
        return records if job.candidates[0] == records[0].candidate else ()

    with suppress(NoTimes):
        asked_why(make_job(candidates=(toy.candidate,)), once)
    return replace(records[0], status=Status.PASS)


def answered(toy: Toy, cause: str = "", seed: int = 0) -> Why:
    """The answer for this toy, with invented times: the settings of ``cause`` remove the loss."""
    look = looked_at(toy)
    remedies = {s for p in proposals(Looked.of(look)) if p.cause == cause for s in p.settings}
    fast = {*STAGES, *(with_setting(toy.candidate, setting) for setting in remedies)} - {toy.candidate}

    def measure(job: Job) -> Sequence[Record]:
        return [look] if len(job.candidates) == 1 else [timed(job, name) for name in job.candidates]

    def timed(job: Job, name: str) -> Record:
        samples = make_samples(speedup=1.0 if name in fast else 0.77, seed=f"{name}{seed}", rounds=30)
        eager, compiled = samples.baseline_s, samples.candidate_s
        samples = replace(
            samples,
            baseline_s=tuple(toy.scale * seconds for seconds in eager),
            candidate_s=tuple(toy.scale * seconds for seconds in compiled),
        )
        return replace(look, job=job, candidate=name, samples=samples)

    job = replace(look.job, candidates=(toy.candidate,), protocol=Protocol())
    why = asked_why(job, measure)
    assert why.lost
    return why


def test_every_cause_has_a_toy() -> None:
    assert {*PLANTED} == {cause.NAME for cause in causes()}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_cause_is_named_and_no_other_is_explained(name: str) -> None:
    for _ in range(TRIES):
        states = {cause.proposal.cause: cause.state for cause in answered(PLANTED[name], name).causes}
        if name in states:
            break
        looked_at.cache_clear()
    assert states[name] == ("suspected" if name in ONLY_SUSPECTED else "explained")
    assert {cause for cause, state in states.items() if state == "explained"} <= {name}


ids, indices, grid = torch.arange(6).view(2, 3), torch.tensor([0, 1, 1, 0]), torch.zeros(2, 4, 4, 2)
KEPT: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Sequence[int]]] = {
    "grid_sampler_2d": (lambda x: nn.functional.grid_sample(x, grid, align_corners=False), (2, 8, 16, 16)),
    "_softmax": (lambda x: x.softmax(-1), (4, 32)),
    "_log_softmax": (lambda x: x.log_softmax(-1), (4, 32)),
    "index_add": (lambda x: torch.zeros(2, 32).index_add(0, indices, x), (4, 32)),
    "embedding_dense_backward": (lambda x: nn.functional.embedding(ids, x), (6, 8)),
    "native_layer_norm": (lambda x: nn.functional.layer_norm(x, [32]), (4, 32)),
    "native_layer_norm_backward": (lambda x: nn.functional.layer_norm(x, [32]), (4, 32)),
    "native_group_norm": (lambda x: nn.functional.group_norm(x, 2), (2, 8, 16, 16)),
    "native_batch_norm": (nn.BatchNorm2d(8), (2, 8, 16, 16)),
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_setting_keeps_eagers_kernel(operator: str) -> None:
    function, shape = KEPT[operator]
    x = torch.randn(*shape, requires_grad=True)
    kept, names = [f"decompose.{operator}=False"], (operator, *CAPTURED_AS.get(operator, ()))

    def kernels(settings: Sequence[str]) -> bool:
        torch._dynamo.reset()
        uncached = torch._inductor.config.patch(fx_graph_cache=False)
        with uncached, own_settings(settings, OF_INDUCTOR).active():
            _, code = run_and_get_code(lambda: torch.compile(function)(x).sum().backward())  # type: ignore[no-untyped-call]
        return any(f"torch.ops.aten.{name}." in text for name in names for text in code)

    assert (kernels([]), kernels(kept)) == (False, True)


@pytest.mark.parametrize("toy", CONTROLS, ids=range(len(CONTROLS)))
def test_a_control_has_no_explained_cause(toy: Toy) -> None:
    for seed in range(5):
        assert answered(toy, seed=seed).explained == ()


def test_the_result_of_compare_explains_itself() -> None:
    inputs, few = torch.randn(256, 256), Protocol(repeat=10, threads=1)
    model = Of(longer, nn.Linear(256, 256))
    result = compare(model, inputs, mode="inference", compilers=["eager", "aot_eager"], protocol=few)
    explanation = result.why()
    assert [cause.proposal.cause for cause in explanation.why.explained] == [CAPTURE]
    assert "Explained: capture." in str(explanation)
    assert explanation.json()["explanations"][0]["candidate"] == "aot_eager"
    assert "<pre>" in explanation._repr_html_()


@pytest.mark.parametrize(
    ("compiler", "says"), [("eager", "eager has no settings"), ("inductr", "there is no compiler 'inductr'")]
)
def test_what_a_result_cannot_explain_is_one_sentence(compiler: str, says: str) -> None:
    few = Protocol(repeat=2, accuracy=False, threads=1)
    result = compare(nn.Linear(4, 4), torch.randn(2, 4), compilers=["eager"], protocol=few)
    with pytest.raises((UsageError, KeyError), match=says):
        result.why(compiler)
    with pytest.raises(UsageError, match="cannot be measured again"):
        replace(result, _again=None).why()
