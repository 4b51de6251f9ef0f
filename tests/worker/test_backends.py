"""The real compilers on small models: they compile, they prove it, and they compute what eager does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from harness.backends import load_backend
from harness.counters import counting_graphs, graphs_compiled
from harness.schema import Mode, Status
from harness.workload import Workload
from tests.factories import known
from tests.worker.planted import (
    Of,
    Trial,
    Verdict,
    changing,
    inference,
    judged,
    mean_of,
    results,
    trial,
    with_fault,
)

DYNAMO = ("dynamo_eager", "aot_eager", "aot_eager_decomp_partition")
INDUCTOR = pytest.param("inductor", marks=pytest.mark.slow)  # tests of sessions compile with it, too
SCRIPTED = ("torchscript", "dynamo_ts", "aot_ts", "aot_ts_mincut")
COMPILERS = (*DYNAMO, *SCRIPTED)


# Dynamo looks at every tensor's gradient, and means nothing by it
pytestmark = [
    pytest.mark.usefixtures("fresh_compiler"),
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
]


# -- finding them -----------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["nonsense", "_dynamo", "", "../measure", "__init__"])
def test_nothing_else_is_a_backend(name: str) -> None:
    with pytest.raises(LookupError, match="no compiler called"):
        load_backend(name)


# -- what they compile ---------------------------------------------------------------------------
@pytest.mark.parametrize("mode", [Mode.TRAINING, Mode.INFERENCE])
@pytest.mark.parametrize("name", [*COMPILERS, INDUCTOR])
def test_a_compiled_step_computes_what_eager_does(name: str, mode: Mode) -> None:
    assert trial("mlp", mode=mode).judge(load_backend(name)) == []
    regions = {Mode.INFERENCE: "forward", Mode.TRAINING: "forward" + "+loss" * (name != "torchscript")}
    assert load_backend(name)(trial("mlp", mode=mode).variant().program).region == regions[mode]


@pytest.mark.parametrize(
    ("name", "of"), [("dynamo_ts", "conv"), ("aot_ts", "tokens"), ("aot_ts_mincut", "conv")]
)
@pytest.mark.series
def test_captured_graphs_are_scripted(name: str, of: str) -> None:
    """Not traced: what Dynamo and AOTAutograd capture has no Python left that scripting could refuse."""
    subject = trial(of)
    variant, compiled = subject.compiled(load_backend(name))
    assert compiled.compiler_calls() == 0
    assert subject.wrong(variant) == []
    graphs = 1 if name == "dynamo_ts" else 2  # AOTAutograd has one for the backward
    assert compiled.compiler_calls() == graphs
    assert compiled.late_notes() == (f"{name}: {graphs} graphs scripted",)


def test_a_graph_that_cannot_be_scripted_is_traced_and_the_note_says_why() -> None:
    def unscriptable(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
        raise RuntimeError("cannot be scripted\nand so on")

    subject = inference(nn.Linear(4, 4), torch.ones(2, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.jit.script", unscriptable)
        variant, compiled = subject.compiled(load_backend("dynamo_ts"))
        assert subject.wrong(variant) == []
    assert compiled.compiler_calls() == 1
    (note,) = compiled.late_notes()
    assert note == "dynamo_ts: 0 graphs scripted, 1 traced, because scripting said: cannot be scripted"


@pytest.mark.parametrize("name", [*DYNAMO, INDUCTOR])
def test_dynamo_backends_prove_that_they_compiled_this_candidate(name: str) -> None:
    subject = trial("mlp", mode=Mode.INFERENCE)
    for _ in range(2):  # the second is not served by the first one's code
        variant, compiled = subject.compiled(load_backend(name))
        assert compiled.compiler_calls() == 0
        assert (compiled.region, compiled.control) == ("forward", False)
        variant.step()
        assert compiled.compiler_calls() == 1
        variant.step()
        assert compiled.compiler_calls() == 1


def test_the_control_is_eager_to_the_bit() -> None:
    subject = trial("tokens")
    variant, compiled = subject.compiled(load_backend("eager"))
    assert (compiled.region, compiled.control, compiled.compiler_calls()) == ("none", True, 0)
    before = graphs_compiled()
    mine, eager = results(variant), results(subject.variant())
    assert all(torch.equal(mine[name], eager[name]) for name in eager)
    assert graphs_compiled() == before


# -- TorchScript ----------------------------------------------------------------------------------------
class Untypable(nn.Module):
    """Cannot be scripted; takes an input by position and one by name."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, **named: Any) -> torch.Tensor:
        y: torch.Tensor = self.norm(self.linear(x))
        return y


class TwoInputs(Untypable):
    def forward(self, x: torch.Tensor, shift: torch.Tensor | None = None, *more: Any) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x) + known(shift)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), ("x", "shift")), (("x",), ("shift",)), (("x", "shift"), ())]
)
def test_tracing_takes_inputs_by_position_and_by_name(args: tuple[str, ...], kwargs: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    given = {"x": torch.randn(8, 4), "shift": torch.randn(8, 4)}
    named: dict[str, Any] = {name: given[name] for name in kwargs}
    subject = inference(TwoInputs(), *(given[name] for name in args), **named)
    assert subject.judge(load_backend("torchscript")) == []


@pytest.mark.parametrize(
    ("module", "note"),
    [
        (nn.Linear(4, 4), "torchscript: scripted"),
        (Untypable(), "torchscript: traced, because scripting said: "),
    ],
)
def test_a_module_that_can_be_scripted_is_and_others_are_traced(module: nn.Module, note: str) -> None:
    compiled = load_backend("torchscript")(inference(module, torch.ones(2, 4)).variant().program)
    assert (compiled.region, compiled.compiler_calls()) == ("forward", 1)
    (said,) = compiled.notes
    assert said.startswith(note)
    assert len(said) < 300


def test_tracing_does_not_count_as_a_step() -> None:
    """It runs the module, which in training moves the statistics of a batch normalization."""
    torch.manual_seed(0)
    work = Workload(module=Untypable(), args=(torch.randn(8, 4),), loss=lambda out, _: out.square().mean())
    subject = Trial(workload=work, dtype="float32", mode=Mode.TRAINING)
    assert "buffer.norm.running_mean" in results(subject.variant())
    assert subject.judge(load_backend("torchscript")) == []


# -- a candidate that did nothing, and one that is inexact on purpose -----------------------------
class LeftToEager(nn.Linear):
    """A layer that Dynamo does not capture at all."""

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


def calls(name: str, module: nn.Module, mode: Mode) -> int:
    work = Workload(module=module, args=(torch.ones(2, 4),), loss=mean_of)
    variant, compiled = Trial(workload=work, dtype="float32", mode=mode).compiled(load_backend(name))
    variant.step()
    return compiled.compiler_calls()


@pytest.mark.parametrize("name", ["dynamo_eager", "aot_eager", "dynamo_ts", "aot_ts"])
@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING])
def test_a_model_left_to_eager_is_not_compiled_even_if_its_loss_is(name: str, mode: Mode) -> None:
    assert calls(name, LeftToEager(4, 4), mode) == 0


@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING])
def test_a_model_captured_in_part_is_compiled(mode: Mode) -> None:
    partly = Of(lambda x, first, left: left(first(x)), nn.Linear(4, 4), LeftToEager(4, 4))
    assert calls("aot_eager", partly, mode) >= 1


def test_a_graph_of_nothing_is_no_work() -> None:
    counted = counting_graphs()
    torch.compile(lambda x: x, backend="eager")(torch.ones(2))
    assert counted() == 0


def test_other_candidates_do_not_count() -> None:
    mine = trial("mlp", mode=Mode.INFERENCE)
    (_, idle), (variant, busy) = (mine.compiled(load_backend("dynamo_ts")) for _ in range(2))
    variant.step()
    assert (idle.compiler_calls(), busy.compiler_calls()) == (0, 1)


# -- in a session ---------------------------------------------------------------------------------
def approximate(change: Callable[[torch.Tensor], torch.Tensor], **protocol: Any) -> Verdict:
    """Of a compiler that is inexact on purpose, and changes outputs so."""
    claims: dict[str, Any] = {"notes": ("first",), "late_notes": lambda: ("late",)}
    work = Workload(module=nn.Linear(8, 8), args=(torch.randn(4, 8),))
    backend = with_fault(changing(change), approximate=True, **claims)
    return judged(backend, lambda: work, Mode.INFERENCE, **protocol)


@pytest.mark.parametrize(
    ("ratio", "protocol", "status"),
    [
        (20.0, {}, Status.FAIL_ACCURACY),
        (30.0, {}, Status.PASS),
        (30.0, {"approximate_sqnr": 35.0}, Status.FAIL_ACCURACY),
        (20.0, {"approximate_sqnr": 15.0}, Status.PASS),
    ],
)
def test_an_approximate_candidate_passes_by_its_ratio(ratio: float, protocol: Any, status: Status) -> None:
    judged_as, parity, notes = approximate(lambda x: x * (1 + 10 ** (-ratio / 20)), **protocol)
    assert (judged_as, parity.failed) == (status, int(status is Status.FAIL_ACCURACY))
    assert parity.sqnr_db == pytest.approx(ratio, abs=0.01)
    worst = known(parity.worst)
    assert worst.candidate_rmse == pytest.approx(10 ** (-ratio / 20) * worst.scale, rel=0.01)
    words = f"{ratio:.1f} dB; the bar is {protocol.get('approximate_sqnr', 25):g} dB"
    assert worst.failure == (words if status is Status.FAIL_ACCURACY else None)
    assert notes == ("first", "late")


@pytest.mark.parametrize("change", [lambda x: x * float("nan"), lambda x: x * 3.0, lambda x: x[:, :4]])
def test_no_answer_at_all_fails_an_approximate_one(change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert approximate(change)[0] is Status.FAIL_ACCURACY
