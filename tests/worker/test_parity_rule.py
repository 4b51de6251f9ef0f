"""The judge of one tensor, and the rank of a suspect: what passes, what fails, and how often by chance."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from harness.parity.field import judge_one, tolerance_of
from harness.parity.measure import EXACT, Error
from harness.parity.rule import (
    DELTA,
    MARGIN,
    NEIGHBORS,
    NOISE,
    OF_GRADIENT,
    RUNS,
    Judgment,
    Truth,
    exceeded,
    rule_for,
)
from harness.precision import precision
from harness.schema import Mode, Status
from harness.workload import Workload
from tests.factories import known
from tests.worker.planted import (
    Of,
    Tensors,
    drawn,
    judgments,
    noise_of,
    opened,
    right,
    rule,
    truth_of,
    with_fault,
    workload,
    wrong,
    wrong_by,
)

UNIT = 2.0**-7  # of bfloat16


def form(eager: Tensors, given: Tensors, exact: Tensors | None = None) -> list[str]:
    """Sentences on wrong forms."""
    failures = wrong(truth_of(exact or eager, eager), given)
    return [judgment.form for judgment in failures if judgment.form]


def off(name: str, error: float, noise: float = 0.0, dtype: str = "float32", seed: int = 0) -> bool:
    """Whether an error of this relative size is beyond a limit, where noisy runs have one of ``noise``."""
    exact = drawn(1 << 14)
    kind = {"float32": torch.float32}.get(dtype, torch.bfloat16)
    eager, *noisy = ({name: exact + noise * drawn(1 << 14, seed + place)} for place in (1, 2, 3))
    given = {name: exact + error * drawn(1 << 14, seed + 9)}
    runs = [{n: t.to(kind) for n, t in run.items()} for run in (eager, *noisy, given)]
    failures = wrong(truth_of({name: exact}, *runs[:-1], by=rule(dtype=dtype)), runs[-1])
    return any(judgment.beyond - {"slope"} for judgment in failures)  # a slope of noise is chance


@pytest.mark.parametrize(("name", "delta"), [("output", DELTA), ("gradient.w", OF_GRADIENT * DELTA)])
def test_in_full_precision_an_error_matters_from_delta_on(name: str, delta: float) -> None:
    """In one place of an output, from ten times the noise on."""
    noise = 1e-2 * delta
    assert not off(name, 5 * noise, noise)
    assert off(name, 20 * noise, noise) is (name == "output")
    assert off(name, 1.5 * delta, noise)


@pytest.mark.parametrize("name", ["output", "loss", "gradient.w"])
def test_in_reduced_precision_it_matters_from_a_unit_on(name: str) -> None:
    assert not off(name, 0.4 * UNIT, dtype="bfloat16")
    assert off(name, 1.5 * UNIT, dtype="bfloat16")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["output", "gradient.w"])
def test_an_error_as_large_as_noisy_eagers_passes_and_a_larger_one_fails(name: str, dtype: str) -> None:
    assert not any(off(name, 0.03, 0.05, dtype, seed) for seed in range(5))
    assert off(name, 0.07, 0.05, dtype)


@pytest.mark.parametrize(("dtype", "noise", "factor"), [("float32", 0.02, 1.002), ("bfloat16", 0.02, 1.006)])
def test_a_wrong_factor_is_seen_below_the_noise(dtype: str, noise: float, factor: float) -> None:
    exact = drawn(1 << 16)
    kind = torch.float32 if dtype == "float32" else torch.bfloat16
    runs = [{"output": (exact + noise * drawn(1 << 16, seed)).to(kind)} for seed in range(1, 5)]
    truth = truth_of({"output": exact}, *runs[:3], by=rule(dtype=dtype))
    assert not [judgment for judgment in wrong(truth, runs[3]) if "slope" in judgment.beyond]
    scaled = {"output": (factor * exact + noise * drawn(1 << 16, 5)).to(kind)}
    (judgment,) = (judgment for judgment in wrong(truth, scaled) if "slope" in judgment.beyond)
    assert judgment.error.slope == pytest.approx(factor - 1, rel=0.3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_zeros_for_small_gradients_fail_beside_large_ones(dtype: str) -> None:
    exact = {"gradient.large": drawn((64, 64)), "gradient.small": 1e-6 * drawn((64, 64), 1)}
    eager = {name: tensor.float() for name, tensor in exact.items()}
    zeros = {**eager, "gradient.small": torch.zeros(64, 64)}
    failures = wrong(truth_of(exact, eager, by=rule(dtype=dtype)), zeros)
    assert [judgment.name for judgment in failures] == ["gradient.small"]


# -- what is not judged --------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1e-12, 0.0])
def test_where_eager_has_no_digit_garbage_fails_alone(size: float) -> None:
    """A bias before a normalization: its gradient is zero in theory."""
    exact = {"gradient.w": drawn(4096), "gradient.bias": size * drawn(64, 1)}
    eager, *noisy = (
        {"gradient.w": exact["gradient.w"].float(), "gradient.bias": 1e-9 * drawn(64, seed).float()}
        for seed in (2, 3, 4)
    )
    truth = truth_of(exact, eager, *noisy)
    assert noise_of(truth) == ["gradient.bias"] if size else True
    for times, passes in ((5.0, True), (300.0, False)):
        given = {**eager, "gradient.bias": times * 1e-9 * drawn(64, 5).float()}
        largest = float(truth.rule.unit)  # a rounding of the large gradient is none of garbage
        assert bool(wrong(truth, given)) is not (passes or times * 1e-9 < largest), times
    assert wrong(truth, {**eager, "gradient.bias": torch.ones(64)})


def test_one_noisy_run_that_crosses_a_kink_makes_nothing_noise_and_hides_nothing() -> None:
    exact = {"gradient.w": drawn(4096)}
    eager = {"gradient.w": exact["gradient.w"].float()}
    loud = {"gradient.w": drawn(4096, 1).float()}
    for noisy, hidden in (((eager, loud), False), ((loud, loud), True)):
        truth = truth_of(exact, eager, *noisy)
        assert bool(noise_of(truth)) is hidden
        assert bool(wrong(truth, {"gradient.w": eager["gradient.w"] * 1.1})) is not hidden
        assert truth.loudest("gradient.w", "size") > NOISE


def test_fp64_that_is_another_computation_is_left_out() -> None:
    exact, eager = {"output": drawn(4096)}, {"output": drawn(4096, 1).float()}
    assert truth_of(exact, eager).exact is None
    assert truth_of(exact, eager, by=rule("field")).exact is not None  # the published rule always takes it
    assert wrong(truth_of(exact, eager), {"output": eager["output"] * 1.001})


# -- form ---------------------------------------------------------------------------------------------
def test_names_shapes_types_and_devices_must_be_eagers() -> None:
    eager = {"output": drawn(8).float()}
    cases: dict[str, Tensors] = {
        "missing": {},
        "only the candidate has it": {**eager, "output.1": torch.ones(2)},
        "shape (8, 1) instead of (8,)": {"output": eager["output"][:, None]},
        "dtype torch.float64 instead of torch.float32": {"output": eager["output"].double()},
        "on the device meta instead of cpu": {"output": eager["output"].to("meta")},
    }
    assert [form(eager, given) for given in cases.values()] == [[words] for words in cases]


def test_no_gradient_is_one_of_zeros_and_no_buffer_or_output_is() -> None:
    for name, fails in (("gradient.unused", False), ("buffer.cache", True), ("output.1", True)):
        both = {"output": drawn(8).float(), name: torch.zeros(5)}
        fewer = {"output": both["output"]}
        assert bool(form(both, fewer)) is bool(form(fewer, both)) is fails
    empty = {"output": torch.zeros(0, 4)}
    assert not form(empty, {"output": torch.zeros(0, 4)})
    assert form(empty, {"output": torch.zeros(4, 0)})


def test_integers_and_booleans_may_differ_as_often_as_noisy_eagers_do() -> None:
    ids = {"output.ids": torch.arange(1000), "output.mask": torch.tensor([True, False])}
    flips = {**ids, "output.ids": ids["output.ids"].index_fill(0, torch.arange(10), 0)}
    one_off = {**ids, "output.ids": ids["output.ids"].index_fill(0, torch.tensor([999]), 998)}
    assert [judgment.name for judgment in wrong(truth_of(ids, ids), one_off)] == ["output.ids"]
    assert not wrong(truth_of(ids, ids, flips, flips), one_off)
    assert wrong(truth_of(ids, ids, flips, flips), {**ids, "output.mask": ~ids["output.mask"]})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_infinities_and_nan_must_be_where_eager_has_them(value: float) -> None:
    exact = {"output": drawn(1000)}
    eager = {"output": exact["output"].float()}
    lost = {"output": eager["output"].index_fill(0, torch.tensor(77), value)}
    assert form(eager, lost, exact) == ["1 values are not finite where eager's are"]
    for meant in (exact, None):  # with fp64, and without
        masked = {"output": (meant or eager)["output"].index_fill(0, torch.arange(10), value)}
        ours = {"output": masked["output"].float()}
        assert not form(ours, {"output": ours["output"].clone()}, masked)
        others = [x for x in (0.0, math.nan, math.inf, -math.inf) if repr(x) != repr(value)]
        assert all(
            form(ours, {"output": ours["output"].index_fill(0, torch.arange(10), x)}, masked) for x in others
        )


@pytest.mark.parametrize("candidate", [math.inf, 70_000.0, math.nan])
def test_an_overflow_of_eager_alone_says_nothing_about_the_candidate(candidate: float) -> None:
    exact = 100 * drawn(1000)
    exact[3] = 70_000.0  # above what float16 holds
    eager = exact.half()
    given = eager.clone()
    given[3] = torch.tensor(candidate).half()
    truth = truth_of({"output": exact}, {"output": eager}, by=rule(dtype="float16"))
    assert truth.lost == ("output",)
    assert not wrong(truth, {"output": given})
    assert wrong(truth, {"output": given.index_fill(0, torch.tensor(4), 9e3)})  # the others still count


def test_a_mask_that_is_another_number_in_fp64_is_no_error_and_hides_none_in_its_rows() -> None:
    exact = drawn((64, 128))
    eager = exact.float()
    exact[:, 64:] = torch.finfo(torch.float64).min
    eager[:, 64:] = torch.finfo(torch.float32).min
    truth = truth_of({"output": exact}, {"output": eager})
    assert not wrong(truth, {"output": eager.clone()})
    assert wrong(truth, {"output": torch.where(eager < -1e9, 0.0, eager)})


# -- figures --------------------------------------------------------------------------------------------
def test_nothing_depends_on_the_size_of_everything() -> None:
    exact = {"output": drawn(4096), "gradient.w": 0.01 * drawn(4096, 1), "gradient.k": 1e-12 * drawn(64, 2)}
    rows = []
    for scale in (2.0**-40, 1.0, 2.0**40):
        whole = {name: tensor * scale for name, tensor in exact.items()}
        eager = {name: tensor.float() for name, tensor in whole.items()}
        given = {name: tensor * 1.002 for name, tensor in eager.items()}
        rows.append([(j.beyond, round(j.used, 6)) for j in judgments(truth_of(whole, eager), given)])
    assert rows[0] == rows[1] == rows[2]
    assert all(beyond for beyond, _ in rows[0])


def test_the_figures_of_the_record_are_absolute_and_stand_side_by_side() -> None:
    exact = {"output": 100 * drawn(4096)}
    eager, noisy, given = ({"output": (exact["output"] * by).float()} for by in (1.0001, 1.003, 1.002))
    truth = truth_of(exact, eager, noisy, noisy)
    (judgment,) = judgments(truth, given)
    assert judgment.used == pytest.approx(2 / 3, rel=0.01)
    figures = judgment.as_error(truth)
    sizes = [figures.eager_rmse, figures.candidate_rmse, figures.noisy_rmse, figures.allowed]
    assert [size / figures.scale for size in sizes if size is not None] == pytest.approx(
        [1e-4, 2e-3, 3e-3, 3e-3], rel=0.01
    )
    assert figures.slope == pytest.approx(2e-3, rel=0.01)
    assert figures.failure is None


def test_the_rule_has_two_names() -> None:
    with pytest.raises(ValueError, match="no parity rule called 'scaled'"):
        rule_for("scaled", precision("float32", "cpu"))


# -- the rank -------------------------------------------------------------------------------------------
DATA, DRAWS = 1 + NEIGHBORS, RUNS * (1 + NEIGHBORS)


def fails(candidate: torch.Tensor, noise: torch.Tensor, least: float = 0.0) -> torch.Tensor:
    """Whether each row fails: all errors beyond all noisy errors, and beyond what does not matter."""
    return candidate.amin(1) > noise.amax(1).clamp(min=least)


def look(error: float, *noise: Error, name: str = "output") -> Judgment:
    """At a tensor whose size is beyond its limit."""
    error_of_size = Error(size=error)
    return Judgment(name=name, call=1, error=error_of_size, beyond=frozenset(("size",)), noise=noise)


def test_an_integer_that_differs_on_all_data_fails() -> None:
    counts = {"buffer.count": torch.arange(4096)}
    looks = [look(1 / 4096, EXACT, name="buffer.count")] * 2
    assert exceeded(truth_of(counts, counts), looks)


def test_a_noisy_run_that_the_model_refuses_hides_no_error() -> None:
    outputs = {"output": drawn(4096)}
    truth = truth_of(outputs, outputs, outputs, {})
    looks = [look(0.5, *truth.noise["output"])] * 2
    assert exceeded(truth, looks)
    assert "noisy eager: 0 %; limit" in Judgment.of(truth, "output", Error(size=0.5), 1).words(truth, looks)


@pytest.mark.parametrize(("dtype", "margin", "least"), [("bfloat16", 1.0, UNIT), ("float32", MARGIN, 1e-3)])
def test_the_rank_is_what_the_statistics_below_say(dtype: str, margin: float, least: float) -> None:
    torch.manual_seed(0)
    truth = Truth.of(rule(dtype=dtype), None, {"gradient.w": drawn(8)})
    outcomes = set()
    for shift in torch.linspace(0, 3, 200).tolist():
        candidate, noise = margin * 0.01 * (torch.rand(DATA) + shift), 0.01 * 3 * torch.rand(DRAWS)
        draws = [Error(size=float(size)) for size in noise]
        looks = [
            look(float(size), *draws[RUNS * place : RUNS * (place + 1)], name="gradient.w")
            for place, size in enumerate(candidate)
        ]
        failed = bool(exceeded(truth, looks))
        assert failed is bool(fails(candidate[None], margin * noise[None], least))
        outcomes.add(failed)
    assert outcomes == {True, False}


@pytest.mark.parametrize("power", [1.0, 4.0])
@pytest.mark.series
def test_a_candidate_as_noisy_as_noisy_eager_fails_as_rarely_as_is_stated(power: float) -> None:
    """Whatever the errors' distribution: 1 / C(18, 6)."""
    torch.manual_seed(0)
    runs, alarms = 0, 0
    for _ in range(8):
        errors = torch.randn(500_000, DATA + DRAWS).abs() ** power
        alarms += int(fails(errors[:, :DATA], errors[:, DATA:]).sum())
        runs += len(errors)
    expected = runs / math.comb(DATA + DRAWS, DATA)
    assert abs(alarms - expected) < 4 * math.sqrt(expected)


def kinks(rate: float, runs: int, count: int) -> torch.Tensor:
    """Errors by the number of crossed kinks, each of a lognormal size about 0.3 % of the tensor."""
    crossed = torch.poisson(torch.full((runs, count), rate))
    sizes = 0.003 * torch.randn(runs, count, 8).exp()
    return (sizes * (torch.arange(8) < crossed[..., None])).sum(2)


LOUDER = 3.0  # noisy eager crosses so many times as many kinks as eager


@pytest.mark.parametrize("rate", [0.1, 0.3, 1.0, 3.0])
@pytest.mark.parametrize(("rho", "most"), [(1.0, 0.0), (2.0, 1e-4), (3.0, 3e-4), (5.0, 5e-3)])
def test_kinks_are_no_faults_also_of_noisier_compilers(rate: float, rho: float, most: float) -> None:
    torch.manual_seed(0)
    candidate, noise = kinks(rho * rate, 50_000, DATA), kinks(LOUDER * rate, 50_000, DRAWS)
    assert float(fails(candidate, MARGIN * noise, OF_GRADIENT * DELTA).double().mean()) <= most


@pytest.mark.parametrize(("rate", "fault", "power"), [(0.1, 0.02, 0.35), (0.1, 0.1, 0.85), (0.3, 0.1, 0.75)])
def test_a_fault_beside_kinks_is_found(rate: float, fault: float, power: float) -> None:
    torch.manual_seed(0)
    candidate = (kinks(rate, 20_000, DATA).square() + fault**2).sqrt()
    noise = kinks(LOUDER * rate, 20_000, DRAWS)
    failed = fails(candidate, MARGIN * noise, OF_GRADIENT * DELTA)
    assert float(failed.double().mean()) > power


# -- the published rule: allclose, else the RMS error against m times eager's, else the cosine ----
TRAINING, INFERENCE = Mode.TRAINING, Mode.INFERENCE


def why(exact: torch.Tensor | None, eager: torch.Tensor, given: torch.Tensor, mode: Mode = TRAINING) -> str:
    by = replace(rule("field"), delta=tolerance_of(mode))
    truth = truth_of(None if exact is None else {"output": exact}, {"output": eager}, by=by)
    return judge_one(truth, "output", given, 1)[1]


def published(exact: torch.Tensor, eager: torch.Tensor, given: torch.Tensor, tolerance: float) -> bool:
    """The formula of torch._dynamo.utils.same, in numpy."""
    truth, ours, theirs = (tensor.double().numpy() for tensor in (exact, eager, given))
    if np.allclose(theirs, ours, atol=tolerance, rtol=tolerance):
        return True
    factor = 3.0 if eager.dtype is torch.bfloat16 or eager.numel() < 1000 or tolerance >= 2e-2 else 2.0

    def rmse(values: object) -> float:
        return float(np.sqrt(np.mean(np.square(truth - values))))

    return rmse(theirs) <= factor * rmse(ours) + tolerance / 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", [TRAINING, INFERENCE])
@pytest.mark.parametrize("count", [999, 4096])
def test_it_is_the_published_formula(count: int, mode: Mode, dtype: torch.dtype) -> None:
    """Over sizes and errors on both sides of every limit."""
    verdicts = set()
    for seed in range(60):
        scale, own, off = (10.0 ** float(x) for x in np.random.default_rng(seed).uniform(-4, 0.5, 3))
        exact = scale * drawn(count, seed)
        eager = (exact + own * drawn(count, seed + 1000)).to(dtype)
        given = (exact + off * drawn(count, seed + 2000)).to(dtype)
        verdict = not why(exact, eager, given, mode)
        assert verdict is published(exact, eager, given, tolerance_of(mode)), seed
        verdicts.add(verdict)
    assert verdicts == {True, False}


def test_without_fp64_the_direction_is_compared_and_form_and_nan_always() -> None:
    eager = drawn(4096).float()
    assert not why(None, eager, eager * 1.5)
    assert why(None, eager, eager + 0.2 * drawn(4096, 1).float()).startswith("cosine")
    assert why(eager.double(), eager, eager.double()).startswith("dtype")
    lost = eager.clone()
    lost[7] = math.nan
    assert why(eager.double(), eager, lost) == "1 values are not finite where eager's are"
    assert why(None, torch.arange(5), torch.arange(5).flip(0)) == "values differ"


@pytest.mark.parametrize(("factor", "status"), [(1.01, Status.PASS), (1.5, Status.FAIL_ACCURACY)])
def test_in_a_session_the_first_and_third_call_are_judged_by_it(factor: float, status: Status) -> None:
    compilers = {"planted": wrong_by(factor, "addmm")}
    session = opened(lambda: workload("mlp"), compilers=compilers, parity="field")
    outcome, judged, *_ = session.prepare("planted")
    parity = known(judged)
    assert outcome is status
    assert (parity.rule, parity.tolerance, parity.steps, parity.other_data) == ("field", 1e-2, 0, ())
    assert bool(known(parity.worst).failure) is (status is Status.FAIL_ACCURACY)


def test_two_runs_of_eager_must_have_the_same_bits() -> None:
    calls = itertools.count()  # every call differs; random numbers would repeat by chance

    def unsteady() -> Workload:
        module = Of(lambda x, line: line(x) * (1.0 + 1e-6 * next(calls)), nn.Linear(32, 8))
        return replace(workload("mlp"), module=module)

    for parity, status in (("field", Status.EAGER_TWO_RUNS_DIFFER), ("noise", Status.PASS)):
        session = opened(unsteady, compilers={"planted": with_fault(right)}, parity=parity)
        assert session.prepare("planted")[0] is status


def test_the_fields_rule_allows_any_error_where_eager_has_no_finite_value() -> None:
    exact, eager = torch.tensor([70000.0], dtype=torch.float64), torch.tensor([math.inf], dtype=torch.float16)
    truth = truth_of({"output": exact}, {"output": eager}, by=rule("field", dtype="float16"))
    assert judge_one(truth, "output", torch.tensor([65504.0], dtype=torch.float16), 1)[1] == ""


def test_the_fields_limit_in_a_record_is_absolute() -> None:
    exact = 50.0 * drawn(4096)
    eager = exact.float()
    given = eager + 0.21 * drawn(4096, 1).float()
    truth = truth_of({"output": exact}, {"output": eager}, by=rule("field"))
    judgment, why = judge_one(truth, "output", given, 1)
    error = judgment.as_error(truth, why)
    assert why.endswith(f"above the limit {error.allowed:.3g}")
    assert error.allowed < error.candidate_rmse < 0.22
