"""Noisy eager: how large its noise is, and what gets none."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from harness.parity.noise import LOUDNESS, LOUDNESS_REDUCED, Noise, loudness
from harness.precision import precision
from harness.schema import Mode, Status
from harness.workload import Workload
from tests.factories import Capture
from tests.worker.planted import MODELS, drawn, judged, results, right, trial, with_fault

COUNT = 1 << 20
Operation = Callable[[torch.Tensor], torch.Tensor]


def noisy(run: Callable[[], torch.Tensor], loud: float = LOUDNESS, seed: int = 0) -> torch.Tensor:
    with Noise(loud, seed):
        return run()


def rms(values: torch.Tensor) -> float:
    return float(values.double().square().mean().sqrt())


@pytest.mark.parametrize(
    ("dtype", "loud"),
    [
        (torch.float32, LOUDNESS),
        (torch.float32, 5.5),
        (torch.bfloat16, LOUDNESS_REDUCED),
        (torch.float16, LOUDNESS_REDUCED),
        (torch.bfloat16, LOUDNESS),
    ],
)
@pytest.mark.parametrize("count", [3 * COUNT // 2 + 5, 100_000])
def test_the_noise_of_a_result_is_as_loud_as_asked(dtype: torch.dtype, loud: float, count: int) -> None:
    """Also of a tensor larger than the pool of factors, in all of its parts."""
    x, y = (1.5 + torch.rand(count, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    x, y = x.to(dtype), y.to(dtype)
    plain = (x * y).double()
    change = ((noisy(lambda: x * y, loud).double() - plain) / plain / torch.finfo(dtype).eps).chunk(50)
    sizes = torch.stack([part.square().mean().sqrt() for part in change[:-1]])
    assert sizes.min() > 0.85 * loud
    assert sizes.max() < 1.35 * loud  # the product with a factor is rounded, too
    assert abs(float(torch.cat(change).mean())) < 10 * loud / count**0.5  # without a direction


def test_the_same_seed_repeats_and_another_does_not() -> None:
    x = drawn(5000).float()
    first, again, other = (noisy(lambda: (x * 1.1).sin(), seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_exact_values_are_left_alone(dtype: torch.dtype) -> None:
    small = torch.arange(-8, 8).to(dtype)
    for run in (
        lambda: small * 2,
        lambda: small + 1,
        lambda: small.sum(),
        lambda: small == 2,
        lambda: small.floor(),
    ):
        assert torch.equal(noisy(run), run())  # type: ignore[no-untyped-call] # of torch
    whole = torch.arange(1000)
    assert torch.equal(noisy(lambda: whole * 3), whole * 3)


@pytest.mark.parametrize(
    "move",
    [
        torch.Tensor.clone,
        torch.relu,
        torch.neg,
        lambda x: x.t().contiguous(),
        lambda x: torch.cat((x, x)),
        lambda x: x[torch.tensor([2, 0])],
        lambda x: torch.where(x > 0, x, 0.0),
        lambda x: x.masked_fill(x > 0, 1.0),
        lambda x: torch.nn.functional.pad(x, (1, 1)),
        lambda x: torch.nn.functional.max_pool2d(x[None], 2)[0],
        lambda x: x.amax(1),
        lambda x: x.max(),
        lambda x: torch.topk(x, 3).values,
        lambda x: torch.maximum(x, x.flip(0)),
        torch.nn.functional.relu6,
        lambda x: x.clone().index_copy_(0, torch.tensor([1]), x[:1]),
        lambda x: torch.linalg.vector_norm(x, math.inf, dim=1),
        lambda x: x[0].scatter_reduce(0, torch.tensor([0, 0]), x[1, :2], "amax"),
        lambda x: x.bfloat16(),
        lambda x: x.view(-1)[3:7],
        lambda x: x.expand(2, 8, 8),
    ],
)
def test_what_moves_or_chooses_values_has_none(move: Operation) -> None:
    x = drawn((8, 8)).float()
    before = x.clone()
    assert torch.equal(noisy(lambda: move(x)), move(x))
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.add_(0.1),
        lambda x: torch.add(x, 0.1, out=torch.empty(64, 64)),
        lambda x: torch.var_mean(x, 0)[0],
        lambda x: torch.var_mean(x, 0)[1],
        lambda x: x.t() * 1.1,
        lambda x: x @ x,
        torch.softmax,
        torch.nn.functional.gelu,
    ],
)
def test_every_result_has_some_also_in_place_and_of_several(operation: Callable[..., torch.Tensor]) -> None:
    x = drawn((64, 64)).float()
    more = (0,) if operation is torch.softmax else ()
    plain, moved = operation(x.clone(), *more), noisy(lambda: operation(x.clone(), *more))
    assert 0.0 < rms(moved - plain) < 50 * torch.finfo(torch.float32).eps * rms(plain)


@pytest.mark.parametrize(
    ("norm", "means"),  # dimensions of an input of (batch, channel, height, width) that share a mean
    [
        (nn.BatchNorm2d(8), (0, 2, 3)),
        (nn.BatchNorm2d(8, affine=False), (0, 2, 3)),
        (nn.BatchNorm2d(8, track_running_stats=False), (0, 2, 3)),
        (nn.GroupNorm(8, 8), (2, 3)),
        (nn.GroupNorm(8, 8, affine=False), (2, 3)),
        (nn.InstanceNorm2d(8), (2, 3)),
        (nn.LayerNorm((16, 16)), (2, 3)),
        (nn.LayerNorm((16, 16), elementwise_affine=False), (2, 3)),
    ],
)
def test_what_is_normalized_follows_the_noise_of_its_mean(norm: nn.Module, means: tuple[int, ...]) -> None:
    """Noise on each element alone would cancel in a mean over elements, to a hundredth."""
    x = drawn((32, 8, 16, 16)).float() + 3.0
    change = (noisy(lambda: norm(x)).double() - norm(x).double()).detach()
    shared = change.mean(means, keepdim=True)
    each = rms(change - shared)
    assert 1.0 < rms(shared) / each < 20.0
    norm.eval()
    if isinstance(norm, nn.BatchNorm2d) and norm.track_running_stats:  # the mean is of earlier calls
        change = (noisy(lambda: norm(x)).double() - norm(x).double()).detach()
        assert rms(change.mean(means)) < 0.1 * rms(change)


def test_the_noise_of_a_mean_is_scaled_by_the_weight_of_its_channel() -> None:
    x = drawn((32, 8, 16, 16)).float() + 3.0
    for norm in (nn.BatchNorm2d(8), nn.GroupNorm(2, 8)):
        plain = (noisy(lambda: norm(x)) - norm(x)).detach()  # noqa: B023 - called at once
        nn.init.constant_(norm.weight, 5.0)
        assert rms((noisy(lambda: norm(x)) - norm(x)).detach()) == pytest.approx(5 * rms(plain), rel=0.2)  # noqa: B023


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "amp"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients_of_a_step_move_and_weights_do_not(name: str, dtype: str) -> None:
    subject = trial(name, dtype)
    variant = subject.variant()
    before = [p.detach().clone() for p in variant.program.module.parameters()]
    plain = results(variant)
    moved = results(variant, Noise(loudness(precision(dtype, "cpu")), 0))
    still = {tensor for tensor in plain if torch.equal(moved[tensor], plain[tensor])}
    assert not any("weight" in tensor or "output" in tensor for tensor in still), still
    assert all(tensor.isfinite().all() for tensor in moved.values())
    assert all(map(torch.equal, before, variant.program.module.parameters()))


@pytest.mark.parametrize(
    "choose",
    [lambda x: x.amax(1), lambda x: x.max(), torch.median, lambda x: torch.linalg.vector_norm(x, math.inf)],
)
def test_the_gradient_of_a_chosen_value_is_a_number(choose: Operation) -> None:
    """It goes where the input equals the result, divided by the number of such places."""
    x = drawn((8, 8)).float().requires_grad_()
    with Noise(LOUDNESS, 0):
        (gradient,) = torch.autograd.grad((choose(x) * 1.1).sum(), x)
    assert int(gradient.count_nonzero()) == choose(x).numel()
    assert gradient.abs().sum().item() == pytest.approx(1.1 * choose(x).numel(), rel=1e-5)


def test_noise_leads_to_no_infinity_and_beyond_no_bound() -> None:
    masked = torch.full((4096,), torch.finfo(torch.float32).min)
    assert noisy(lambda: masked + 1e30).isfinite().all()
    sure = torch.linspace(15.0, 18.0, 4096)
    assert float(noisy(lambda: sure.sigmoid()).max()) <= 1.0
    nn.functional.binary_cross_entropy(noisy(lambda: sure.sigmoid()), torch.ones(4096))


def test_all_tensors_of_a_list_have_some() -> None:
    values = [torch.rand(64) + 0.5 for _ in range(3)]
    with Noise(LOUDNESS, 0):
        roots = torch._foreach_sqrt(values)
    assert not any(torch.equal(root, value.sqrt()) for root, value in zip(roots, values, strict=True))


class Strict(nn.Linear):
    """Refuses values that do not repeat, as a distribution refuses a matrix that is not symmetric."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = super().forward(x)
        if not torch.equal(result, super().forward(x)):
            raise ValueError("they must be equal")
        return result


def test_a_model_that_refuses_noise_costs_no_job_and_isnt_judged(capsys: Capture) -> None:
    def work() -> Workload:
        return Workload(module=Strict(32, 32), args=(torch.randn(8, 32),))

    status, parity, _ = judged(with_fault(right), work, Mode.INFERENCE)
    assert status is Status.CANNOT_JUDGE
    assert "when its operations round differently" in parity.unjudged
    assert "a run of noisy eager fails: they must be equal" in capsys.readouterr().out
