"""The numerics card: its figures by hand, planted tensors, and right compilers that round otherwise."""

import json
import math
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.nn import functional

from harness.codec import from_json, to_json
from harness.numerics.card import Cards, chosen, is_logits, logit_figures, nearer, rows_of
from harness.numerics.figures import cosine, distance, quantiles, sqnr_db
from harness.parity.measure import WHOLE, WHOLE_OUTPUT, sketch
from harness.parity.rule import Truth
from harness.program import Program
from harness.schema import Extras, Mode, Numerics, Status
from harness.worker.main import Answers
from harness.worker.session import Session
from runner.engine.replies import Checked, Opened
from tests.factories import known
from tests.worker.planted import CPU, Fault, Forward, Tensors, opened, right, truth_of, with_fault, workload

INF, NAN = math.inf, math.nan
TINY = 2.0**-149  # the least float32 above 0
NUMERICS = Extras(numerics=True)


# -- figures ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("dtype", "values", "others", "equal", "undefined", "ulp"),
    [
        (torch.float32, [1.0, 1.0], [1.0, 1.0 + 2.0**-23], 1, 0, [0.0, 1.0]),
        (torch.float32, [1.0, -1.0], [1.0 - 2.0**-24, -1.0 - 2.0**-22], 0, 0, [1.0, 2.0]),
        (torch.float32, [0.0, TINY], [-0.0, -TINY], 0, 0, [0.0, 2.0]),
        (torch.float32, [NAN, NAN, 1.0, INF, INF], [NAN, 1.0, 1.0, INF, 1.0], 3, 2, [0.0]),
        (torch.float64, [1.0, 2.0], [1.0 + 2.0**-51, -2.0], 0, 0, [2.0, 2.0**63]),
        (torch.bfloat16, [1.0, 256.0], [1.0 + 2.0**-7, 258.0], 0, 0, [1.0, 1.0]),
        (torch.float16, [1.0], [1.0 + 2.0**-10], 0, 0, [1.0]),
        (torch.int64, [1, 2], [1, 3], 1, 0, []),
        (torch.bool, [True, True], [True, False], 1, 0, []),
        (torch.complex64, [1 + 1j], [1 + (1 + 2.0**-23) * 1j], 1, 0, [0.0, 1.0]),
    ],
)
def test_a_distance(
    dtype: torch.dtype, values: Any, others: Any, equal: int, undefined: int, ulp: list[float]
) -> None:
    off = distance(torch.tensor(values, dtype=dtype), torch.tensor(others, dtype=dtype))
    assert (off.equal, off.undefined, off.ulp.tolist()) == (equal, undefined, ulp)


def test_quantiles_sqnr_and_cosine() -> None:
    parts = [torch.tensor([3.0, 0.0]).double(), torch.tensor([1.0, 2.0]).double()]
    assert quantiles(parts, (0.5, 0.75, 0.99, 1.0)) == [1.0, 2.0, 3.0, 3.0]
    assert math.isnan(quantiles([], (0.5,))[0])
    exact = torch.tensor([3.0, 4.0])
    assert sqnr_db(exact, torch.tensor([3.0, 4.5])) == pytest.approx(20.0)
    assert (sqnr_db(exact, exact), math.isnan(sqnr_db(exact * 0, exact))) == (INF, True)
    assert cosine(exact, torch.tensor([4.0, -3.0])) == 0.0
    assert math.isnan(cosine(exact, exact * 0))


# -- the card of planted tensors ----------------------------------------------------------------------------
def card(exact: Tensors | None, eager: Tensors, given: Tensors, target: Any = None) -> Numerics:
    """The card of ``given``, sketched as parity does."""
    bench = SimpleNamespace(take=sketch, workload=SimpleNamespace(target=target), device=CPU)
    cards = Cards(cast("Any", bench))
    ours, theirs, meant = (
        {name: bench.take(name, t) for name, t in (side or {}).items()} for side in (eager, given, exact)
    )
    truth: Truth = truth_of(meant if exact else None, ours)
    return known(cards.card("planted", lambda: theirs, truth))


def test_each_kind_of_element_is_counted_in_its_place() -> None:
    eager = {
        "output.0": torch.tensor([1.0, 0.0, 2.0, NAN, 5.0]),
        "output.1": torch.tensor([1, 2, 3]),
        "output.2": torch.ones(4),
        "output.3": torch.ones(2),
        "gradient.w": torch.zeros(6),
        "buffer.b": torch.ones(100),
    }
    given = {
        "output.0": torch.tensor([1.0 + 2.0**-22, -0.0, 2.0, NAN, NAN]),
        "output.1": torch.tensor([1, 2, 4]),
        "output.2": torch.ones(2, 2),
        "buffer.b": torch.zeros(100),
    }
    of = card(None, eager, given)  # without output.3; a gradient of zeros may be left out
    assert (of.elements, of.elements_of, of.elements_equal) == (20, 20, 2 + 2 + 6)
    assert (of.tensors, of.tensors_equal, of.integers, of.undefined) == (5, 1, 3, 1 + 4 + 2)
    assert (of.ulp_median, of.ulp_99, of.ulp_largest, of.ulp_largest_in) == (0.0, 2.0, 2.0, "output.0")
    assert (of.sqnr_db, of.cosine, of.nearer, of.logits, of.kl) == (None, None, "", "", None)


def test_a_sketch_is_compared_in_the_type_of_its_tensor() -> None:
    eager = torch.randn(WHOLE + 4000, generator=torch.Generator().manual_seed(0)).bfloat16()
    given = eager.clone()
    given[-1:].view(torch.int16).add_(1)  # the last elements are always kept
    of = card({"gradient.w": eager.double()}, {"gradient.w": eager}, {"gradient.w": given})
    assert (of.elements, of.elements_of) == (WHOLE, WHOLE + 4000)
    assert (of.elements_equal, of.ulp_largest, of.eager_sqnr_db) == (WHOLE - 1, 1.0, None)
    assert known(of.sqnr_db) > 80
    wide = card(None, {"gradient.w": eager}, {"gradient.w": given.float() * (1 + 2.0**-20)})
    assert known(wide.ulp_largest) >= 2.0**16  # float32's: one side has no such values in bfloat16


def test_who_is_nearer_to_fp64() -> None:
    assert nearer(100.0, 100.9) == nearer(INF, INF) == "equal"
    assert (nearer(100.0, 98.0), nearer(98.0, 100.0), nearer(INF, 98.0)) == (
        "candidate",
        "eager",
        "candidate",
    )
    assert nearer(None, 1.0) == nearer(1.0, None) == ""


# -- logits ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "shape", "target", "expected"),
    [
        ("output", (4, 10), torch.arange(4), True),
        ("output", (4, 7, 10), torch.arange(4), True),
        ("output", (4, 7, 10), torch.zeros(4, 7, dtype=torch.int64), True),
        ("output.logits", (4, 7, 10), None, True),
        ("output.logits", (4, 1), None, False),
        ("output", (4, 10), None, False),
        ("output", (4, 10), torch.arange(4) + 9, False),
        ("output", (4, 10), torch.arange(5), False),
        ("output", (4, 10), torch.zeros(4), False),
        ("output", (4,), torch.arange(4), False),
        ("gradient.head", (4, 10), torch.arange(4), False),
    ],
)
def test_which_output_is_logits(name: str, shape: tuple[int, ...], target: Any, expected: bool) -> None:
    assert is_logits(name, torch.zeros(shape), target) is expected


def test_several_outputs_are_no_logits_unless_called_so() -> None:
    assert chosen(["output"]) == "output"
    assert chosen(["output.0", "output.1"]) == chosen([]) == ""
    assert chosen(["output.hidden", "output.logits"]) == "output.logits"


def test_figures_of_logits_by_hand() -> None:
    eager = torch.tensor([[0.0, math.log(3.0)], [5.0, -INF]])  # 1/4, 3/4; 1, 0
    other = torch.tensor([[0.0, 0.0], [5.0, -INF]])  # 1/2, 1/2; the same
    figures = logit_figures(eager, other)
    change, kl = math.log(1.5), 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert figures == pytest.approx(
        {"top_1": 0.5, "log_prob_mean": change / 2, "log_prob_largest": change, "kl": kl / 2}
    )
    assert logit_figures(eager, other * NAN)["kl"] is None


def test_of_large_logits_whole_rows_are_seen() -> None:
    classes, rows = 512, WHOLE_OUTPUT // 512 + 52
    logits = torch.randn(rows, classes, generator=torch.Generator().manual_seed(0))
    other = logits.clone()
    other[::2] = other[::2].flip(1)
    of = card(None, {"output": logits}, {"output": other}, target=torch.arange(rows) % classes)
    assert (of.logits, of.logits_rows, len(rows_of(logits))) == ("output", rows // 2, rows // 2)
    assert (of.top_1, known(of.kl) > 0.5) == (0.0, True)


# -- a session -------------------------------------------------------------------------------------------
def rounding_once_more(program: Program, forward: Forward) -> Forward:
    return _linear(program, forward, lambda part, x: functional.linear(x, part.weight, part.bias) * 3 / 3)


def reassociated(program: Program, forward: Forward) -> Forward:
    """Each product is the sum of those of two halves."""

    def halves(part: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        (a, b), (v, w) = x.chunk(2, -1), part.weight.chunk(2, 1)
        return functional.linear(a, v) + functional.linear(b, w) + part.bias

    return _linear(program, forward, halves)


def _linear(program: Program, forward: Forward, product: Any) -> Forward:
    for part in program.module.modules():
        if isinstance(part, nn.Linear):
            part.forward = partial(product, part)  # type: ignore[method-assign]
    return forward


def session_with(fault: Fault, mode: Mode = Mode.TRAINING, **more: Any) -> tuple[Session, Status]:
    session = opened(partial(workload, "mlp"), mode, "float32", {"planted": with_fault(fault)}, **more)
    return session, session.prepare("planted")[0]


@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.INFERENCE])
@pytest.mark.parametrize("fault", [rounding_once_more, reassociated])
def test_a_right_compiler_that_rounds_otherwise_is_not_bit_equal_and_not_wrong(
    fault: Fault, mode: Mode
) -> None:
    threads = torch.get_num_threads()
    session, status = session_with(fault, mode, extras=NUMERICS)
    of, again = known(session.numerics["planted"]), session.controls[0]
    assert status is Status.PASS
    assert 0 < known(of.bit_equal) < 1 <= known(of.ulp_largest)
    assert (of.top_1, of.logits, of.logits_rows, of.nearer != "") == (1.0, "output", 32, True)
    assert known(of.eager_sqnr_db) > 100
    assert 0 <= known(of.kl) < 1e-9
    assert [control.run for control in session.controls] == ["eager again", "eager, 2 threads", "noisy eager"]
    assert (again.bit_equal, again.ulp_largest, again.nearer, again.kl) == (1.0, 0.0, "equal", 0.0)
    noisy = session.controls[-1]
    assert (noisy.nearer, noisy.sqnr_db) == ("eager", of.noisy_sqnr_db)
    assert torch.get_num_threads() in (1, threads)


@pytest.mark.parametrize(
    "more", [{}, {"extras": NUMERICS, "accuracy": False}, {"extras": NUMERICS, "process": 1, "processes": 2}]
)
def test_no_card_unless_asked_and_in_the_first_process_alone(more: dict[str, Any]) -> None:
    session, _ = session_with(right, **more)
    assert (session.numerics, session.controls) == ({}, ())


def test_the_rule_of_the_field_keeps_whole_tensors_and_has_no_noise() -> None:
    session, _ = session_with(right, extras=NUMERICS, parity="field")
    of = known(session.numerics["planted"])
    assert (of.bit_equal, of.noisy_sqnr_db, len(session.controls)) == (1.0, None, 2)


def test_a_card_that_fails_costs_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cards, "_card", lambda *_: 1 / 0)
    session = opened(partial(workload, "mlp"), compilers={"planted": with_fault(right)}, extras=NUMERICS)
    status, _, _, notes = session.prepare("planted")
    assert (status, session.controls) == (Status.PASS, ())
    assert notes[-1] == "no numerics card of planted: division by zero"


def test_the_parent_reads_what_a_worker_answers() -> None:
    session, _ = session_with(right, extras=NUMERICS)
    answers = Answers(session._job, lambda _: None, lambda _: workload("mlp"), session._compilers)
    calls = {"call": "open"}, {"call": "prepare", "candidate": "planted"}
    replies = [json.loads(json.dumps(to_json(answers(call)))) for call in calls]
    assert len(from_json(Opened, replies[0]).controls) == 3
    assert known(from_json(Checked, replies[1]).numerics).bit_equal == 1.0
