"""What people give to ``compare()``: compiled modules, modes, losses, inputs, dropout."""

import dataclasses
import pickle
import types
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from harness.loading import input_checks
from harness.loading.dropout import KEPT_DROPOUT, neutralize
from harness.loading.losses import REDUCTIONS, loss_of_output
from harness.loading.own_model_build import build
from harness.precision import precision
from harness.schema import Protocol, Record, Status
from harness.workload import Workload
from runner.analysis.derive import summarize
from runner.errors import UsageError
from tests.factories import Patch, finding, known, make_job, sampled
from tests.worker.planted import CPU, Of, refusing
from torchduet import compare

CHECK = Protocol(performance=False)


def record_of(model: Any, inputs: Any = None, **more: Any) -> Record:
    inputs = torch.randn(6, 8) if inputs is None else inputs
    result = compare(model, inputs, **{"compilers": ["eager"], "protocol": CHECK, **more})
    return result.records[0]


def remarks(record: Record) -> tuple[str, ...]:
    return tuple(said for said in known(record.model).remarks if not said.startswith("no loss was given"))


# -- compiled already ---------------------------------------------------------
def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")  # type: ignore[return-value]


def nested() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), compiled(nn.Sequential(nn.Linear(8, 8), compiled(nn.ReLU()))))


def in_place() -> nn.Module:
    model = nn.Linear(8, 8)
    model.compile(backend="eager")
    return model


def its_forward() -> nn.Module:
    model = nn.Linear(8, 8)
    model.forward = torch.compile(model.forward, backend="eager")  # type: ignore[method-assign]
    return model


class OfItsClass(nn.Linear):
    @torch.compile(backend="eager")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


class HoldsCompiled(nn.Linear):
    def __init__(self) -> None:
        super().__init__(8, 8)
        self.quick = torch.compile(self.slow, backend="eager")

    def slow(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.quick(x)


COMPILED = (
    (lambda: compiled(nn.Linear(8, 8)), "the model"),
    (nested, "1, 1.1"),
    (in_place, "the model"),
    (its_forward, "forward"),
    (HoldsCompiled, "quick"),
    (lambda: OfItsClass(8, 8), "forward"),
)


@pytest.mark.parametrize(("compiled", "warm"), sampled(3, COMPILED, (False, True)))
def test_what_is_compiled_is_unwrapped(compiled: tuple[Callable[[], nn.Module], str], warm: bool) -> None:
    make, named = compiled
    model, inputs = make(), torch.randn(6, 8)
    if warm:
        with warnings.catch_warnings():  # torch's own, of nested compiled modules
            warnings.simplefilter("ignore")
            model(inputs)
    record = record_of(model, inputs, compilers=["dynamo_eager"])
    assert record.status is Status.PASS
    assert remarks(record) == (f"unwrapped from torch.compile, for eager must be eager: {named}",)
    assert all(parameter.grad is None for parameter in model.parameters())


@torch.compile(backend="eager")
def far_away(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x @ weight


@pytest.mark.parametrize("warm", [False, True])
def test_what_cannot_be_unwrapped_is_refused(warm: bool) -> None:
    torch.compiler.reset()
    model = Of(lambda x, line: far_away(x, line.weight), nn.Linear(8, 8))
    inputs = torch.randn(6, 8)
    if warm:
        model(inputs).sum().backward()
    record = record_of(model, inputs)
    assert record.status is Status.EAGER_1ST_RUN_FAIL
    assert "eager's own step runs code that torch.compile compiles" in known(record.failure).message


# -- modes --------------------------------------------------------------------
@pytest.mark.parametrize("training", [True, False])
def test_the_mode_follows_the_module(training: bool) -> None:
    model = nn.Linear(8, 4).train(training)
    result = compare(model, torch.randn(6, 8), compilers=["eager"], protocol=CHECK)
    mode = "training" if training else "inference"
    assert result.records[0].job.case.mode.value == mode
    said = f"mode: {mode}, as model.training is {training}; use mode= to change it"
    assert said in result.records[0].notes
    assert said[1:] in str(result)


@pytest.mark.slow
def test_a_part_that_was_frozen_in_eval_mode_stays_so() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.BatchNorm1d(8)))
    model[1].eval()
    assert remarks(record_of(model)) == ("left in eval mode, as given: 1",)
    assert remarks(record_of(model.eval(), mode="training")) == ()


def test_published_weights_are_not_for_a_model_of_ones_own() -> None:
    says = "^--pretrained: mine:make has the weights that its function gives it$"
    with pytest.raises(LookupError, match=says):
        build("mine:make", make_job(pretrained=True).case)


# -- losses -------------------------------------------------------------------
@pytest.mark.parametrize(
    "loss", [functional.cross_entropy, nn.CrossEntropyLoss(), lambda o, t: (o - t).sum()]
)
def test_a_loss_that_misses_its_target_says_so(loss: Any) -> None:
    record = record_of(nn.Linear(8, 4), loss=loss)
    assert "the loss failed without a target: give one (compare(target=...)" in known(record.failure).message
    assert record_of(nn.Linear(8, 4), loss=loss, target=torch.rand(6, 4)).status is Status.PASS


@pytest.mark.slow
def test_the_loss_that_is_chosen_is_said() -> None:
    chosen = "No loss was given: the loss is the mean of the output; to set one, give loss="
    result = compare(nn.Linear(8, 4), torch.randn(6, 8), compilers=["eager"], protocol=CHECK)
    assert chosen in str(result)
    own = Of(lambda x, line: {"loss": line(x).sum()}, nn.Linear(8, 4))
    assert "the loss is the output's own loss" in str(record_of(own).model)
    for more in ({"loss": torch.sum}, {"mode": "inference"}):
        record = record_of(nn.Linear(8, 4), **more)
        assert record.status is Status.PASS
        assert "no loss" not in str(record.model)


@pytest.mark.parametrize("loss", [loss_of_output, *REDUCTIONS.values()])
def test_nothing_in_our_losses_breaks_a_graph(loss: Callable[[Any, Any], Any], monkeypatch: Patch) -> None:
    """Dynamo does not trace ``is_dataclass`` before torch 2.6."""
    x = torch.ones(2, requires_grad=True)
    with monkeypatch.context() as patched:
        patched.setattr(dataclasses, "is_dataclass", refusing(AssertionError("the graph breaks")))
        losses = [loss(output, None).detach() for output in (x, (x, x), {"logits": x, "others": [x]})]
    assert len(losses) == 3


@pytest.mark.parametrize(
    ("output", "says"),
    [
        (torch.arange(3), "the output has no floating tensor that a loss could be made of"),
        ({"text": "none"}, "the output has no floating tensor that a loss could be made of"),
        (torch.ones(3), "no floating tensor of the output depends on a weight or an input that does"),
    ],
    ids=["integers", "text", "constant"],
)
def test_an_output_of_which_no_loss_can_be_made_is_named(output: Any, says: str) -> None:
    for loss in (loss_of_output, *REDUCTIONS.values()):
        with pytest.raises(ValueError, match=says):
            loss(output, None)


# -- inputs -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (torch.randn(6, 8).double(), "input.0 is float64 and the model's parameters are float32"),
        (torch.ones(6, 8, dtype=torch.int64), "all inputs are int64 and the model's parameters are float32"),
        (torch.randn(6, 8, device="meta"), "input.0 is on the device meta, which holds no values"),
    ],
)
def test_inputs_that_do_not_fit_are_said(inputs: Any, says: str) -> None:
    failure = known(record_of(nn.Linear(8, 4), inputs).failure)
    assert says in failure.message


def test_types_are_named_only_where_they_explain_an_error() -> None:
    def message(function: Any) -> str:
        model, inputs = Of(function, nn.Linear(8, 4)), torch.ones(6, 8, dtype=torch.int8)
        return known(record_of(model, inputs, mode="inference").failure).message

    for overflows in (lambda x, _: x.clamp(0, 300), lambda x, _: x.masked_fill(x > 0, 300)):
        assert "all inputs are int8" not in message(overflows)
    for mixes in (lambda x, _: x.add_(0.5), lambda x, line: nn.functional.linear(x, line.weight)):
        assert "all inputs are int8" in message(mixes)


def test_inputs_that_a_model_takes_all_the_same_are_noted() -> None:
    casts = Of(lambda x, line: line(x.float()), nn.Linear(8, 4))
    record = record_of(casts, torch.randn(6, 8).double())
    assert record.status is Status.PASS
    assert remarks(record) == ("inputs: input.0 is float64 and the model's parameters are float32",)


def test_what_is_on_the_cpu_is_copied_to_another_device_and_noted() -> None:
    work = Workload(module=nn.Linear(8, 4), args=(torch.randn(6, 8),))
    device = torch.device("cuda:1")
    assert input_checks.remarks(work, device, precision("float32", "cuda"), training=False) == (
        "the model came on cpu, copied to cuda:1",
        "the inputs came on cpu, copied to cuda:1",
    )


class OneMapping(nn.Linear):
    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
        return super().forward(batch["x"])


def test_inputs_that_are_no_arguments_of_the_forward_are_said() -> None:
    failure = known(record_of(OneMapping(8, 4), {"x": torch.randn(6, 8)}).failure)
    assert "the inputs do not fit forward(batch: " in failure.message
    assert "for one argument that is the whole, give ({...},)" in failure.message
    assert record_of(OneMapping(8, 4), ({"x": torch.randn(6, 8)},)).status is Status.PASS
    failure = known(record_of(nn.Linear(8, 4), [torch.randn(6, 8), torch.randn(6, 8)]).failure)
    assert "2 are given by position" in failure.message


# -- precisions ---------------------------------------------------------------
def test_a_model_in_another_precision_than_asked_for_is_said() -> None:
    failure = known(record_of(nn.Linear(8, 4).bfloat16(), torch.randn(6, 8).bfloat16()).failure)
    assert "the model's parameters are bfloat16 and the precision is float32" in failure.message
    half = record_of(nn.Linear(8, 4).bfloat16(), torch.randn(6, 8).bfloat16(), dtype="bfloat16")
    assert half.status is Status.PASS
    double = record_of(nn.Linear(8, 4).double(), torch.randn(6, 8).double())
    assert remarks(double) == ("the model is float64, which float32 does not cast: it is measured so",)


def test_an_autocast_that_torch_turns_off_is_not_measured(monkeypatch: Patch) -> None:
    """torch warns, and the step would be one in float32. To 2.2 it has no float16 on a CPU."""
    work, kind = Workload(module=nn.Linear(8, 4), args=(torch.randn(6, 8),)), precision("amp_float16", "cpu")
    assert input_checks.remarks(work, CPU, kind, training=False) == ()
    monkeypatch.setattr(torch, "autocast", partial(torch.autocast, enabled=False))
    with pytest.raises(ValueError, match="has no amp_float16 on cpu: it is float32"):
        input_checks.remarks(work, CPU, kind, training=False)
    assert input_checks.remarks(work, CPU, precision("float32", "cpu"), training=False) == ()


def test_a_backward_without_gradients_that_can_be_compared_is_no_pass() -> None:
    weight = torch.randn(8, 8, requires_grad=True)
    hidden = record_of(Of(lambda x: x @ weight))
    assert hidden.status is Status.CANNOT_JUDGE
    why = "no gradient can be compared: the step has gradients only of tensors that the module does not hold"
    assert known(hidden.parity).unjudged == why
    assert record_of(Of(lambda x: x @ weight), mode="inference").status is Status.PASS


def test_gradients_that_are_all_zero_are_no_pass() -> None:
    linear = nn.Linear(8, 4)
    zero = record_of(linear, torch.randn(6, 8), loss=lambda output: output.sum() * 0)
    assert zero.status is Status.CANNOT_JUDGE
    assert known(zero.parity).unjudged == "no gradient can be compared: each is 0 in eager"
    assert record_of(linear, torch.randn(6, 8), loss=lambda output: output.sum()).status is Status.PASS


class SquareLoss(nn.Module):
    def forward(self, output: torch.Tensor, target: Any) -> torch.Tensor:
        return (output * output).mean()


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo's own, of a loss that starts a graph
@pytest.mark.parametrize("loss", [None, lambda output: output.sum() * 2, SquareLoss()])
@pytest.mark.series
def test_a_scripted_model_is_measured_and_said_to_be_one(loss: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.script is deprecated
        model = torch.jit.script(nn.Sequential(nn.Linear(8, 4), nn.ReLU()))
    record = record_of(model, loss=loss)
    assert record.status is Status.PASS, record.failure
    compiled = record_of(model, loss=loss, compilers=["aot_eager"])  # Dynamo takes the loss and nothing else
    assert compiled.status is Status.NOT_COMPILED
    assert remarks(record) == ("eager runs TorchScript, and no Python, in the model",)
    assert known(record.parity).tensors == 4  # output, loss and two gradients
    assert all(parameter.grad is None for parameter in model.parameters())


class Looks(nn.Module):
    """Has a loop that data end: Dynamo leaves all of it to eager."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            if x.sum() > 0:
                x = x - 1
        return x


def test_why_nothing_reached_a_compiler_is_said() -> None:
    compilers = ["aot_eager", "inductor"]
    result = compare(Looks(), torch.randn(6, 8), compilers=compilers, mode="inference", protocol=CHECK)
    for record in result.records:
        assert record.status is Status.NOT_COMPILED
        message = known(record.failure).message
        assert f"nothing of the model reached {record.candidate}: " in message
        assert "data-dependent" in message


# -- dropout and other random numbers: neutralized, or named --------------------------------------
def checked(model: nn.Module, compiler: Any = "dynamo_eager", **more: Any) -> Record:
    return record_of(model, torch.randn(32, 16), compilers=compiler, **more)


def draws_more(graph: torch.fx.GraphModule, example_inputs: object) -> Callable[..., Any]:
    """Draws other numbers than eager, as inductor's kernels do."""

    def run(*given: Any) -> Any:
        torch.rand(1)
        return graph.forward(*given)

    return run


def dropping() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.1), nn.ReLU(), nn.Linear(64, 8))


def noisy(of_noise: float = 1.0, beside: float = 1.0) -> nn.Module:
    """Returns what it computes with noise and without. Compiled, both are wrong by these factors."""

    def forward(x: torch.Tensor, line: nn.Linear) -> tuple[torch.Tensor, torch.Tensor]:
        plain = line(x)
        both = plain + torch.randn_like(plain), plain
        return (both[0] * of_noise, both[1] * beside) if torch.compiler.is_compiling() else both

    return Of(forward, nn.Linear(16, 8))


def literal() -> nn.Module:
    return Of(lambda x, line: (functional.dropout(line(x), 0.3), line(x)), nn.Linear(16, 8))


@pytest.mark.parametrize(("model", "draws"), [(noisy, "randn_like"), (literal, "bernoulli_")])
def test_what_draws_is_named(model: Callable[[], nn.Module], draws: str) -> None:
    record = checked(model(), draws_more, mode="inference")
    assert (record.status, record.parity and record.parity.random) == (Status.CANNOT_JUDGE, draws)
    (case,) = finding([record], "Parity cannot be judged: eager's own results").cases
    assert f"eager draws random numbers ({draws})" in case
    assert checked(model(), mode="inference").status is Status.PASS  # it draws the same


def test_in_training_a_part_of_the_model_stands_for_the_outputs() -> None:
    model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.1), nn.Linear(64, 8))
    record = checked(model, draws_more, mode="training", dropout="keep")
    assert (record.status, record.parity and record.parity.random) == (Status.CANNOT_JUDGE, "bernoulli_")


@pytest.mark.parametrize("wrong", [{"beside": 1.1}, {"of_noise": torch.inf}])
def test_a_wrong_answer_is_not_excused_by_chance(wrong: dict[str, float]) -> None:
    assert checked(noisy(**wrong), draws_more, mode="inference").status is Status.FAIL_ACCURACY


def test_a_dropout_costs_no_compiler_its_pass() -> None:
    record = checked(dropping(), draws_more)
    assert record.status is Status.PASS
    assert known(record.model).generators == ("torch's CPU generator",)
    said = "Dropout (0.1) is 1e-30: it runs and drops nothing (--dropout=keep leaves it)."
    assert said in summarize([record]).caveats


@pytest.mark.slow
def test_a_wrong_answer_beside_a_dropout_that_drops_nothing_fails() -> None:
    inner = dropping()
    model = Of(lambda x, inner: inner(x) * (1.1 if torch.compiler.is_compiling() else 1.0), inner)
    assert checked(model).status is Status.FAIL_ACCURACY
    assert getattr(inner[1], "p", None) == 0.1  # of the caller


def test_a_model_in_eval_mode_says_nothing_of_dropout() -> None:
    facts = known(checked(dropping().eval()).model)
    assert (facts.remarks, facts.generators) == ((), ())


def test_every_place_of_a_probability() -> None:
    @dataclasses.dataclass(frozen=True)
    class Frozen:
        resid_pdrop: float = 0.2
        layer_norm_eps: float = 1e-5

    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, dropout=0.3)
            self.memory = nn.LSTM(8, 8, num_layers=2, dropout=0.4)
            self.config = types.SimpleNamespace(hidden_dropout_prob=0.5, drop_last=True, layerdrop=0.1, eps=9)
            self.cfg = {"drop_path_rates": [0.0, 0.1], "rate": 0.5}
            self.inner = nn.Sequential(nn.Dropout2d(0.6), nn.Dropout(0.0))
            self.args = Frozen()
            self.dropout_p = 0.7

    model = Functional()
    assert sorted(neutralize(model)) == [0.1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    kept = [model.attention.dropout, model.memory.dropout, model.config.hidden_dropout_prob, model.dropout_p]
    assert [*kept, model.args.resid_pdrop] == [KEPT_DROPOUT] * 5
    assert [getattr(part, "p", None) for part in model.inner] == [KEPT_DROPOUT, 0.0]
    assert model.cfg == {"drop_path_rates": [0.0, KEPT_DROPOUT], "rate": 0.5}
    assert (model.config.layerdrop, model.config.eps) == (0.0, 9)
    assert neutralize(model) == ()


def test_the_callers_module_and_its_configuration_are_left_alone(tmp_path: Path) -> None:
    class Configured(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = types.SimpleNamespace(dropout=0.25)
            self.line = nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.dropout(self.line(x), self.config.dropout, self.training)

    model = Configured()
    assert checked(model, output_dir=tmp_path / "run").status is Status.PASS
    assert model.config.dropout == 0.25
    assert "dropout (0.25) is 1e-30" in (tmp_path / "run" / "records.jsonl").read_text()


def test_modules_of_a_function_may_have_names_of_methods() -> None:
    keys, values, items = (nn.Linear(8, 8) for _ in range(3))
    record = record_of(lambda x: items(keys(x) + values(x)), compilers=["aot_eager"])
    assert record.status is Status.PASS


def test_a_result_can_be_pickled_and_a_loss_may_have_options() -> None:
    def loss(output: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return output.square().mean() * scale

    more: dict[str, Any] = {"compilers": ["aot_eager"], "protocol": CHECK}
    result = compare(nn.Linear(4, 4), torch.randn(2, 4), loss=loss, mode="training", **more)
    again = pickle.loads(pickle.dumps(result))  # noqa: S301 - our own
    assert again.records == result.records
    assert again.records[0].status is Status.PASS
    with pytest.raises(UsageError, match="nothing was timed"):
        again.why()
