"""Compilers with a planted fault, models with a planted trait, and short ways to run them."""

import operator
import types
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func

from harness.backends.shared.dynamo import compile_with_dynamo
from harness.failures import JobFailed
from harness.loading.suite_files import load_suite
from harness.parity.noise import Noise, loudness
from harness.parity.rule import RUNS, Judgment, Rule, Truth, judge, rule_for
from harness.precision import precision
from harness.program import Compiled, Program
from harness.schema import Case, CompilerOptions, Extras, Mode, Parity, Protocol, Setting, Status, TensorError
from harness.timing.copies import replica
from harness.timing.step import Variant, seed_everything
from harness.timing.workbench import cloned
from harness.worker.session import Session
from harness.worker.status_page import Activity
from harness.workload import Workload
from tests.factories import known, make_job

CPU = torch.device("cpu")
Backend = Callable[[Program], Compiled]
Graph = torch.fx.GraphModule


# -- compilers ------------------------------------------------------------------------
def scale_one_node(graph: Graph, part: str, factor: float) -> None:
    """Multiplies the first floating result of an op named ``*part*`` by ``factor``, in place."""
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        source = node.args[0] if node.target is operator.getitem else node  # ops with several results
        if node.op == "call_function" and part in str(source.target) and isinstance(value, torch.Tensor):
            if not value.is_floating_point():
                continue
            with graph.graph.inserting_after(node):
                wrong = graph.graph.call_function(torch.ops.aten.mul.Tensor, (node, factor))
            wrong.meta = dict(node.meta)
            node.replace_all_uses_with(wrong, delete_user_cb=lambda user, keep=wrong: user is not keep)
            graph.recompile()
            return
    raise LookupError(f"no op called *{part}* in this graph:\n{graph.graph}")


def wrong_by(factor: float, part: str) -> Backend:
    """A ``torch.compile`` backend whose forward graph has one op scaled."""

    def right(graph: Graph, inputs: list[Any]) -> Any:
        return make_boxed_func(graph.forward)

    def wrong(graph: Graph, inputs: list[Any]) -> Any:
        scale_one_node(graph, part, factor)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=wrong, bw_compiler=right, inference_compiler=wrong)
    return lambda program: compile_with_dynamo(program, cast("str", backend))


def untouched(program: Program) -> Compiled:
    """A backend that says it compiled the forward and never did."""
    return Compiled(forward=program.forward(), region="forward", compiler_calls=lambda: 0)


def refusing(error: BaseException) -> Callable[..., Any]:
    """A backend, a forward or whatever is called, that raises."""

    def call(*_: object) -> Any:
        raise error

    return call


def silent(_: Activity) -> None:
    """To stand for an announcement that nobody hears."""


def suite_that(build: Callable[[], Any]) -> Callable[[str], Any]:
    """To stand for ``load_suite``: every suite builds this."""
    return lambda _: types.SimpleNamespace(build=lambda _: build())


# -- models --------------------------------------------------------------------------------
class Of(nn.Module):
    """What a function makes of the inputs and of its parts. Copies share the function."""

    def __init__(self, function: Callable[..., Any], *parts: nn.Module) -> None:
        super().__init__()
        self.parts, self.function = nn.ModuleList(parts), function

    def forward(self, *given: Any) -> Any:
        return self.function(*given, *self.parts)


class Block(nn.Module):
    """A residual branch, as models repeat it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.body(x))


class Attention(nn.Module):
    """Causal self-attention, in one matrix where ``fused``. The key's bias has no gradient in theory."""

    def __init__(self, width: int = 32, heads: int = 4, *, fused: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.fused = fused
        if fused:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.query = nn.Linear(width, width)
            self.key = nn.Linear(width, width)
            self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (
            self.qkv(x).chunk(3, dim=-1) if self.fused else [f(x) for f in (self.query, self.key, self.value)]
        )
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return cast("torch.Tensor", self.out(mixed.transpose(1, 2).flatten(2)))


class ConvNorm(nn.Module):
    """Convolutions with a bias before batch normalization, whose gradient is zero in theory."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.SiLU(),
        )  # fmt: skip
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cast("torch.Tensor", self.head(self.body(x).mean((2, 3))))


class Tokens(nn.Module):
    """Embedding, attention, normalization and a vocabulary's head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.norm = nn.LayerNorm(32)
        self.attention = Attention()
        self.final = nn.LayerNorm(32)
        self.head = nn.Linear(32, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        x = x + self.attention(self.norm(x))
        return cast("torch.Tensor", self.head(self.final(x)))


def token_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def mean_of(output: torch.Tensor, target: Any) -> torch.Tensor:
    """A loss that cancels wholly after a normalization."""
    return output.mean()


def workload(name: str) -> Workload:
    """One of the small models, with weights and inputs from torch's generator as it stands."""
    classes = nn.functional.cross_entropy
    makers: dict[str, Callable[[], tuple[nn.Module, torch.Tensor, Any, Any]]] = {
        "conv": lambda: (ConvNorm(), torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,)), classes),
        "attention": lambda: (Attention(), *torch.randn(2, 4, 16, 32), nn.functional.mse_loss),
        "fused": lambda: (Attention(fused=True), *torch.randn(2, 4, 16, 32), nn.functional.mse_loss),
        "tokens": lambda: (Tokens(), *torch.randint(0, 50, (2, 4, 16)), token_loss),
        "norm_mean": lambda: (
            nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32)), torch.randn(64, 32), None, mean_of
        ),
        "mlp": lambda: (
            nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8)),
            torch.randn(32, 32), torch.randint(0, 8, (32,)), classes,
        ),
    }  # fmt: skip
    module, x, target, loss = makers[name]()
    return Workload(module=module, args=(x,), target=target, loss=loss)


MODELS = ("conv", "attention", "fused", "tokens", "norm_mean", "mlp")


def case_of(suite: str, name: str, mode: Mode = Mode.TRAINING, scale: str = "tiny") -> Case:
    """The case of this name, among those that the suite offers."""
    cases = load_suite(suite).cases(Setting(mode=mode, device_type="cpu", scale=scale))
    (case,) = (case for case in cases if case.name == name)
    return case


def trainable(module: nn.Module) -> int:
    """The number of parameters that are trained."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


# -- sessions -------------------------------------------------------------------------------------
Forward = Callable[..., tuple[Any, Any]]
Fault = Callable[[Program, Forward], Forward]
Verdict = tuple[Status, Parity, tuple[str, ...]]


def unopened(
    work: Callable[[], Workload],
    mode: Mode = Mode.TRAINING,
    dtype: str = "float32",
    compilers: Mapping[str, Backend] | None = None,
    options: CompilerOptions | None = None,
    tell: Callable[[Activity], None] = silent,
    extras: Extras | None = None,
    **protocol: Any,
) -> Session:
    """A session, with weights and inputs from a fixed seed."""
    job = make_job(
        "m",
        suite="none",
        mode=mode,
        batch_size=4,
        dtype=dtype,
        candidates=tuple(compilers or ("eager",)),
        options=options or CompilerOptions(),
        extras=extras or Extras(),
        protocol=Protocol(**{"threads": 1, "min_sample_s": 0.0, **protocol}),
    )
    torch.manual_seed(0)
    return Session(job, tell, lambda _: work(), compilers)


def opened(work: Callable[[], Workload], mode: Mode = Mode.TRAINING, *given: Any, **more: Any) -> Session:
    """A session whose eager has run."""
    session = unopened(work, mode, *given, **more)
    session.open()
    return session


def failed(work: Callable[[], Any]) -> JobFailed:
    """The failure that this must end in."""
    with pytest.raises(JobFailed) as raised:
        work()
    return raised.value


def go_on(session: Session, rounds: int = 3) -> dict[str, int]:
    """Warms the session up and measures; what was compiled again meanwhile."""
    session.warm_up()
    return session.measure(rounds)[1]


def judged(
    backend: Backend,
    work: Callable[[], Workload],
    mode: Mode = Mode.TRAINING,
    dtype: str = "float32",
    **more: Any,
) -> Verdict:
    """A session's verdict on a planted compiler."""
    status, parity, _, notes = opened(work, mode, dtype, {"planted": backend}, **more).prepare("planted")
    return status, known(parity), notes


def failing(verdict: tuple[Any, ...]) -> TensorError:
    """The worst tensor of a candidate that fails parity, as this one must."""
    status, parity, *_ = verdict
    assert status is Status.FAIL_ACCURACY
    worst: TensorError = known(known(parity).worst)
    return worst


def with_fault(fault: Fault, **claims: Any) -> Backend:
    """A compiler whose forward is eager's, with a fault."""

    def compile(program: Program) -> Compiled:  # noqa: A001 - as the real ones are called
        forward = fault(program, program.forward())
        return Compiled(forward=forward, region="forward", compiler_calls=lambda: 1, **claims)

    return compile


def right(_: Program, forward: Forward) -> Forward:
    return forward


def changing(output: Callable[[Any], Any] = lambda output: output, loss: float = 1.0) -> Fault:
    """Eager's outputs, changed, and its loss times ``loss``."""

    def plant(_: Program, forward: Forward) -> Forward:
        def run(*given: Any) -> tuple[Any, Any]:
            of_eager, result = forward(*given)
            return None if of_eager is None else of_eager * loss, output(result)

        return run

    return plant


def every(n: int, first: int = 1, factor: float = 1.5) -> Fault:
    """Every n-th call is wrong, from the call ``first`` on."""

    def plant(_: Program, forward: Forward) -> Forward:
        calls = 0

        def run(*given: Any) -> tuple[Any, Any]:
            nonlocal calls
            calls += 1
            loss, output = forward(*given)
            wrong = factor if calls >= first and calls % n == 0 else 1.0
            return None if loss is None else loss * wrong, output * wrong

        return run

    return plant


# -- single steps -----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One workload at one precision, with the runs that a session makes of it."""

    workload: Workload
    dtype: str
    mode: Mode

    def variant(self, *, exact: bool = False, **more: Any) -> Variant:
        """A copy of its own. ``more``: for ``replica``."""
        kind = precision("float32" if exact else self.dtype, "cpu")
        cast_to = precision(self.dtype, "cpu").cast
        training = self.mode is Mode.TRAINING
        program = replica(self.workload, CPU, cast_to, training=training, exact=exact, **more)
        return Variant(program, kind, CPU)

    def compiled(self, backend: Backend, **options: Any) -> tuple[Variant, Compiled]:
        """A copy that runs what ``backend`` makes of it."""
        variant = self.variant(options=CompilerOptions(**options))
        compiled = backend(variant.program)
        variant.use(compiled.forward)
        return variant, compiled

    def truth(self) -> Truth:
        kind = precision(self.dtype, "cpu")
        noisy = [results(self.variant(), Noise(loudness(kind), seed)) for seed in range(RUNS)]
        exact = results(self.variant(exact=True))
        return Truth.of(rule_for("noise", kind), exact, results(self.variant()), noisy)

    def wrong(self, variant: Variant) -> list[Judgment]:
        """The tensors of a step that are beyond a limit."""
        return wrong(self.truth(), results(variant))

    def judge(self, backend: Backend) -> list[Judgment]:
        """The tensors beyond a limit, of a candidate that ``backend`` compiles."""
        return self.wrong(self.compiled(backend)[0])


def trial(name: str, dtype: str = "float32", mode: Mode = Mode.TRAINING) -> Trial:
    torch.manual_seed(0)
    return Trial(workload=workload(name), dtype=dtype, mode=mode)


def inference(module: nn.Module, *args: Any, **kwargs: Any) -> Trial:
    work = Workload(module=module, args=args, kwargs=kwargs)
    return Trial(workload=work, dtype="float32", mode=Mode.INFERENCE)


def results(variant: Variant, watch: AbstractContextManager[Any] | None = None) -> dict[str, torch.Tensor]:
    """What one step from a seed and the initial buffers produces, inside ``watch``."""
    variant.restore()
    seed_everything(1)
    with watch or nullcontext():
        result = variant.step()
    return variant.results(*result, cloned)


# -- tensors made by hand ------------------------------------------------------------------------
Tensors = dict[str, torch.Tensor]


def rule(name: str = "noise", dtype: str = "float32") -> Rule:
    return rule_for(name, precision(dtype, "cpu"))


def truth_of(exact: Tensors | None, eager: Tensors, *noisy: Tensors, by: Rule | None = None) -> Truth:
    return Truth.of(by or rule(), exact, eager, noisy)


def judgments(truth: Truth, given: Mapping[str, torch.Tensor]) -> list[Judgment]:
    return [judge(truth, name, given.get(name), 1) for name in dict.fromkeys((*truth.eager, *given))]


def wrong(truth: Truth, given: Mapping[str, torch.Tensor]) -> list[Judgment]:
    """The tensors that are beyond a limit, or of a wrong form."""
    return [judgment for judgment in judgments(truth, given) if judgment.beyond or judgment.form]


def noise_of(truth: Truth) -> list[str]:
    """The tensors that are not judged."""
    return [name for name in truth.own if truth.is_noise(name)]


def drawn(size: int | tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def right_graph(program: Program) -> Compiled:
    """A backend of torch.compile that runs the captured graph as it is."""
    return compile_with_dynamo(program, cast("str", lambda graph, _: graph.forward))
