"""Weights at which every part counts, and the slope of each part: faults that low precision would hide."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import cast

import pytest
import torch
from torch import nn

from harness.parity.distance import ROW
from harness.parity.parts.balance import any_has_several_weights, balance_of, scale_weights
from harness.parity.parts.slopes import PartSlopes
from harness.parity.rule import compare
from harness.parity.steps import STEPS
from harness.program import Program
from harness.schema import Mode, Status
from harness.tensors import named_tensors
from harness.workload import Workload
from tests.worker.planted import Attention, failure, noisy, refer, right_graph, rule, workload, wrong_by
from tests.worker.test_other_data import Fault, Forward, baked_weight, every, judged, stale_input, with_fault

REDUCED = ("bfloat16", "amp")


class Branches(nn.Module):
    """Residual branches of small weights, which add less than bfloat16 rounds away, as in a new GPT."""

    def __init__(self, size: float = 0.02) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(4))
        self.inner = nn.ModuleList((Attention(fused=True), Mlp(), Attention(fused=True), Mlp()))
        self.head = nn.Linear(32, 50, bias=False)
        for part in self.inner.modules():
            if isinstance(part, nn.Linear):
                nn.init.normal_(part.weight, std=size)
                nn.init.zeros_(part.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for norm, inner in zip(self.norms, self.inner, strict=True):
            x = x + inner(norm(x))
        return cast("torch.Tensor", self.head(x))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cast("torch.Tensor", self.down(nn.functional.gelu(self.up(x))))


def branches() -> Workload:
    return Workload(module=Branches(), args=(torch.randint(0, 50, (4, 32)),))


# -- balance ------------------------------------------------------------------------------


def test_every_module_has_outputs_near_one_and_the_weights_are_as_before() -> None:
    torch.manual_seed(0)
    module = Branches(0.001)
    tokens = torch.randint(0, 50, (4, 32))
    before = {name: parameter.clone() for name, parameter in module.named_parameters()}
    factors = balance_of(module, lambda: module(tokens))
    assert all(torch.equal(before[name], parameter) for name, parameter in module.named_parameters())
    assert all(math.log2(factor).is_integer() for factor in factors.values())
    assert "inner.1.down.weight" in factors
    sizes = {}
    hooks = [
        part.register_forward_hook(
            lambda _part, _args, output, name=name: sizes.update(
                {name: float(output.detach().square().mean().sqrt())}
            )
        )
        for name, part in module.named_modules()
        if isinstance(part, nn.Linear)
    ]
    module(tokens)
    assert sizes["inner.1.down"] < 1e-4
    undo = scale_weights(module, factors)
    module(tokens)
    for hook in hooks:
        hook.remove()
    assert all(0.7 <= size <= 1.42 for size in sizes.values()), sizes
    for one in undo:
        one()
    assert all(torch.equal(before[name], parameter) for name, parameter in module.named_parameters())


class Conv1D(nn.Module):
    """The product of transformers' GPT-2: its name is that of a convolution, its channels are last."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 24) * 0.001)
        self.bias = nn.Parameter(torch.zeros(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class Raw(nn.Module):
    """Products and a bias in one module, as models that are written for reading have them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(16, 64) * 0.001)
        self.down = nn.Parameter(torch.randn(64, 16) * 0.001)
        self.shift = nn.Parameter(torch.full((16,), 0.001))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.up) @ self.down + self.shift


def test_a_product_that_is_no_module_of_torch_has_a_factor_too() -> None:
    torch.manual_seed(0)
    module, x = Conv1D(), torch.randn(4, 12, 16)
    factors = balance_of(module, lambda: module(x))
    scale_weights(module, factors)
    assert factors.keys() == {"weight"}
    assert 0.3 <= float(module(x).detach().square().mean().sqrt()) <= 3.0


def test_several_weights_of_one_module_have_factors_by_their_own_size() -> None:
    module, x = Raw(), torch.randn(4, 12, 16)
    factors = balance_of(module, lambda: module(x))
    assert factors.keys() == {"up", "down"}
    before = float(module(x).detach().square().mean().sqrt())
    scale_weights(module, factors)
    assert before < 0.01
    assert 0.1 <= float(module(x).detach().square().mean().sqrt()) <= 10.0
    assert any_has_several_weights(nn.Sequential(nn.Linear(4, 4), module))
    assert not any_has_several_weights(nn.Sequential(nn.Linear(4, 4), Conv1D(), Mlp()))


def test_the_bias_of_a_convolution_is_for_its_channels_also_where_the_width_is_the_same() -> None:
    torch.manual_seed(0)
    module, x = nn.Conv2d(4, 8, 1), torch.randn(2, 4, 8, 8)
    with torch.no_grad():
        module.bias.copy_(torch.arange(8.0) * 100)  # type: ignore[union-attr] # it has one
        module.weight.mul_(0.001)
    factors = balance_of(module, lambda: module(x))
    assert factors["weight"] >= 256.0  # not hidden by the bias


def test_a_weight_that_two_modules_share_has_one_factor_and_a_lossy_one_has_none() -> None:
    module = nn.Sequential(nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False))
    weight = cast("nn.Linear", module[0]).weight
    nn.init.normal_(weight, std=0.001)
    module[1].weight = weight
    x = torch.randn(64, 16)
    assert balance_of(module, lambda: module(x)).keys() == {"0.weight"}
    tiny = nn.Linear(16, 16, bias=False).half()
    tiny.weight.data.fill_(2.0**-10)
    tiny.weight.data[0, 0] = 60000.0  # four times as large it would overflow
    quiet = torch.randn(64, 16, dtype=torch.float16) * 2.0**-10
    quiet[:, 0] = 0.0
    assert balance_of(tiny, lambda: tiny(quiet)) == {}


class Tied(nn.Module):
    """A language model whose embedding is also its last product, with the small weights of a first step."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(1000, 64), nn.Embedding(32, 64)
        self.norm, self.last = nn.LayerNorm(64), nn.Linear(64, 1000, bias=False)
        for part in (self.words, self.places, self.last):
            nn.init.normal_(part.weight, std=0.002)
        if tied:
            self.last.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1])
        logits: torch.Tensor = self.last(self.norm(self.words(tokens) + self.places(places)))
        return logits


@pytest.mark.parametrize("tied", [True, False])
def test_an_embedding_that_is_also_the_last_product_does_not_make_the_softmax_one_hot(tied: bool) -> None:
    torch.manual_seed(0)
    module = Tied(tied=tied)
    tokens = torch.randint(0, 1000, (4, 32))
    factors = balance_of(module, lambda: module(tokens))
    assert factors["words.weight"] == (128.0 if tied else 512.0)
    assert factors["places.weight"] == factors["words.weight"]  # neither hides the other
    scale_weights(module, factors)
    loss = nn.functional.cross_entropy(module(tokens).flatten(0, 1), tokens.flatten())
    (gradient,) = torch.autograd.grad(loss, [module.last.weight])
    assert not bool(((gradient != 0) & (gradient.abs() < torch.finfo(torch.float32).tiny)).any())
    assert 0.2 < float(module(tokens).detach().std()) < 8


# -- slopes -----------------------------------------------------------------------------


def synthetic() -> tuple[PartSlopes, dict[str, torch.Tensor], torch.Tensor]:
    """An output x + 0.02 y, whose second part has 2 % of its size."""
    x, y = noisy(20000, 1), noisy(20000, 2)
    truth = x + 0.02 * y
    size = float(truth.square().mean().sqrt())
    slopes = PartSlopes(
        names=("the result of mm", "the result of bmm"),
        directions=torch.stack((x, 0.02 * y)) / size,
        names_of_outputs=("output",),
    )
    return slopes, {"output": truth}, y


def test_a_part_that_is_too_large_is_named_although_it_is_below_the_roundings_of_the_output() -> None:
    slopes, exact, y = synthetic()
    reference = refer(exact, {"output": exact["output"].bfloat16()}, by=rule(dtype="bfloat16"))
    right = (exact["output"] + 1e-5 * noisy(20000, 3)).bfloat16()
    assert slopes.judge(reference, exact, {"output": right}) is None
    wrong = {"output": (exact["output"] + 0.1 * 0.02 * y).bfloat16()}  # a fifth of a percent of the output
    found = slopes.judge(reference, exact, wrong)
    assert found is not None
    assert found.failure is not None
    assert found.failure.startswith("as if the result of bmm were 1")
    assert found.slope == pytest.approx(0.1, rel=0.2)


def test_no_part_is_judged_where_eagers_outputs_are_far_from_the_truth() -> None:
    slopes, exact, y = synthetic()
    eager = {"output": (exact["output"] * (1 + 0.5 * noisy(20000, 5))).bfloat16()}
    reference = refer(exact, eager, by=rule(dtype="bfloat16"))
    assert slopes.judge(reference, exact, {"output": (exact["output"] + 5 * y).bfloat16()}) is None


def test_parts_are_counted_and_their_directions_are_changes_of_the_output() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).double()
    x = torch.randn(16, 8, dtype=torch.float64)

    def run(context: object) -> dict[str, torch.Tensor]:
        with torch.no_grad(), context():  # type: ignore[operator]
            return dict(named_tensors(module(x), "output"))

    other = module(x.flip(0)).detach()
    found = PartSlopes.measure(run, lambda: {"output": other})
    assert found is not None
    assert list(found.names) == [
        "the result of addmm (part 1 of 2)",
        "the result of addmm (part 2 of 2)",
        "the change of the outputs with the inputs",
    ]
    output = module(x).detach()
    size = float(output.square().mean().sqrt())
    assert torch.allclose(found.directions[1], output.flatten() / size)
    assert torch.allclose(found.directions[2], (output - other).flatten() / size)
    assert PartSlopes.measure(lambda _: {"output": x}, lambda: {"output": x}) is None  # no part


# -- through the whole check ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize("fault", [every(2), every(3), baked_weight], ids=["second", "third", "baked"])
def test_structural_faults_of_a_small_branch_are_found(fault: Fault, dtype: str) -> None:
    def planted(program: Program, forward: Forward) -> Forward:
        """The fault, in the last branch alone."""
        inner = cast("Branches", program.module).inner[3]
        wrong = fault(
            replace(program, module=inner),
            lambda args, kwargs, target: (None, Mlp.forward(cast("Mlp", inner), *args)),
        )
        inner.forward = lambda x: wrong((x,), {}, None)[1]
        return forward

    status, found, _ = judged(with_fault(planted), branches, Mode.INFERENCE, dtype)
    assert status is Status.FAIL_ACCURACY
    assert "on other inputs and weights" in found.found_by


@pytest.mark.parametrize("dtype", REDUCED)
@pytest.mark.parametrize(("part", "factor"), [("addmm", 1.02), ("addmm", 0.98), ("layer_norm", 1.02)])
def test_a_scale_of_two_percent_is_found_in_a_small_branch(part: str, factor: float, dtype: str) -> None:
    status, found, _ = judged(wrong_by(factor, part), branches, Mode.INFERENCE, dtype)
    assert status is Status.FAIL_ACCURACY
    assert "on other" in found.found_by  # the slope of the whole output, or of the part


@pytest.mark.parametrize("dtype", REDUCED)
def test_the_slope_of_a_part_that_is_wrong_in_the_last_step_alone_is_found(dtype: str) -> None:
    def planted(program: Program, forward: Forward) -> Forward:
        inner = cast("Branches", program.module).inner[3]
        calls = 0

        def last_is_wrong(x: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return Mlp.forward(cast("Mlp", inner), x) * (1.012 if calls % STEPS == 0 else 1.0)

        inner.forward = last_is_wrong
        return forward

    status, found, _ = judged(with_fault(planted), branches, Mode.INFERENCE, dtype)
    assert status is Status.FAIL_ACCURACY
    assert found.found_by == "the slope of each part, on other data"


@pytest.mark.parametrize(
    "dtype", [*REDUCED, *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in ("float16", "float32"))]
)
def test_what_is_right_passes(dtype: str) -> None:
    assert judged(right_graph, branches, Mode.INFERENCE, dtype)[0] is Status.PASS
    for name in ("mlp", "conv"):
        work = partial(workload, name)
        assert judged(right_graph, work, Mode.TRAINING, dtype)[0] is Status.PASS


@pytest.mark.parametrize(("rows", "fails"), [(1, True), (2000, True), (4096, False)])
def test_an_error_in_one_place_is_found_far_below_the_limits_in_full_precision(
    rows: int, *, fails: bool
) -> None:
    """Errors of 0.003 % of the output. In all rows they may come from another algorithm."""
    exact = noisy(1 << 18, 5)
    wrong = exact.clone()
    wrong[-rows * ROW :] += 3e-5 * noisy(rows * ROW, 6)
    reference = refer({"output": exact}, {"output": exact.float()}, by=rule(mode=Mode.INFERENCE))
    found = compare(reference, {"output": wrong.float()})
    assert bool(found.failed) is fails
    assert not fails or "RMS error of 64 elements in a row" in failure(found)
    gradient = refer({"gradient.w": exact}, {"gradient.w": exact.float()}, by=rule())
    assert compare(gradient, {"gradient.w": wrong.float()}).failed == 0


class Indifferent(nn.Module):
    """Its outputs depend on its inputs by half a percent, less than the roundings that are permitted."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(16, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1 + 0.008 * torch.tanh(self.up(x))


@pytest.mark.parametrize("dtype", REDUCED)
def test_an_input_that_is_not_refreshed_is_found_where_all_outputs_are_alike(dtype: str) -> None:
    def indifferent() -> Workload:
        return Workload(module=Indifferent(), args=(torch.randn(8, 16),))

    assert judged(right_graph, indifferent, Mode.INFERENCE, dtype)[0] is Status.PASS
    status, found, _ = judged(with_fault(stale_input), indifferent, Mode.INFERENCE, dtype)
    assert status is Status.FAIL_ACCURACY
    assert found.found_by == "the slope of each part, on other data"
    assert "as if the change of the outputs with the inputs were" in failure(found)


def test_a_few_wrong_rows_of_a_large_output_are_found_in_reduced_precision() -> None:
    """One part in fifty of the output off by 4 %, in roundings of 0.2 %."""
    exact = {"output": noisy(1 << 18, 5)}
    eager = exact["output"].bfloat16()
    wrong = exact["output"].clone()
    wrong[-(1 << 18) // 50 :] += 0.04 * noisy((1 << 18) // 50 + 1, 6).sign()
    reference = refer(exact, {"output": eager}, by=rule(mode=Mode.INFERENCE, dtype="bfloat16"))
    assert compare(reference, {"output": eager}).failed == 0
    found = compare(reference, {"output": wrong.bfloat16()}).worst
    assert found is not None
    assert found.failure is not None
    assert found.failure.startswith("RMS error of 64 elements in a row")
