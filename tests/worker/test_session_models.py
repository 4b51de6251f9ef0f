"""Models that fail a session: on loading, in eager, between runs, while they are timed."""

from __future__ import annotations

import inspect
import itertools
import re
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from harness.backends.shared.dynamo import compile_with_dynamo
from harness.program import Compiled, Program
from harness.schema import BASELINE, Mode, Status
from harness.worker.session import Session
from harness.worker.status_page import Activity
from harness.workload import Workload
from tests.factories import known
from tests.worker.planted import Of, failed, go_on, opened, refusing, right_graph

Build = Callable[[], Any]


pytestmark = pytest.mark.usefixtures("fresh_compiler")


session = partial(opened, mode=Mode.INFERENCE)


def around(forward: Callable[[torch.Tensor], Any]) -> Build:
    """Builds a linear layer followed by ``forward``, which all its copies share."""

    def build() -> Workload:
        module = Of(lambda x, linear: forward(linear(x)), nn.Linear(4, 4))
        return Workload(module=module, args=(torch.ones(2, 4),))

    return build


def at_call(number: int, error: BaseException) -> Callable[[torch.Tensor], torch.Tensor]:
    """Raises at that call (1 = first) of all copies together."""
    calls = itertools.count(1)

    def forward(x: torch.Tensor) -> torch.Tensor:
        if next(calls) == number:
            raise error
        return x

    return forward


# -- loading -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("build", "status", "message"),
    [
        (refusing(ImportError("no module named x")), Status.MODEL_FAIL_TO_LOAD, "no module named x"),
        (refusing(SystemExit(3)), Status.MODEL_FAIL_TO_LOAD, "sys.exit(3) was called"),
        (refusing(MemoryError("too big")), Status.OOM, "too big"),
        (lambda: nn.Linear(1, 1), Status.MODEL_FAIL_TO_LOAD, "build() of suite 'none' returned a Linear"),
        (around(lambda x: x), Status.MODEL_FAIL_TO_LOAD, "no loss"),  # training needs one
    ],
)
def test_a_model_that_cannot_be_built(build: Build, status: Status, message: str) -> None:
    error = failed(lambda: opened(build, Mode.TRAINING))
    assert (error.status, error.failure.phase) == (status, "open")
    assert message in error.failure.message


# -- eager -------------------------------------------------------------------------------------
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 1 EiB"


@pytest.mark.parametrize(
    ("call", "error", "accuracy", "status"),
    [
        (1, ValueError("boom"), True, Status.EAGER_1ST_RUN_FAIL),
        (2, ValueError("boom"), True, Status.EAGER_2ND_RUN_FAIL),
        (1, ValueError("boom"), False, Status.EAGER_FAIL_TO_RUN),
        (1, torch.OutOfMemoryError(OUT_OF_MEMORY), True, Status.EAGER_1ST_RUN_OOM),
        (2, torch.OutOfMemoryError(OUT_OF_MEMORY), True, Status.EAGER_2ND_RUN_OOM),
        (1, torch.OutOfMemoryError(OUT_OF_MEMORY), False, Status.EAGER_1ST_RUN_OOM),
    ],
)
def test_eager_itself_fails(call: int, error: Exception, accuracy: bool, status: Status) -> None:
    failure = failed(lambda: session(around(at_call(call, error)), accuracy=accuracy))
    assert failure.status is status
    assert (failure.failure.kind, failure.failure.phase) == (type(error).__name__, "eager")


@pytest.mark.parametrize(("drifts", "calls"), [(False, 10), (True, 22)])
def test_eager_that_differs_is_run_again_as_settled_as_candidates_are(calls: int, *, drifts: bool) -> None:
    """Once for the balance of weights, twice and once on other data; on both, fp64 and two noisy runs.

    Where the two differ: six steps in a row of eager and seven of fp64, one more step, and three on a copy.
    """
    seen: list[int] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return x * len(seen) if drifts else x

    session(around(forward))
    assert len(seen) == calls


def test_an_output_without_tensors_cannot_be_checked() -> None:
    build = around(lambda x: types.SimpleNamespace(words="none"))
    error = failed(lambda: session(build))
    assert (error.status, "no tensor" in error.failure.message) == (Status.EAGER_1ST_RUN_FAIL, True)
    session(build, accuracy=False)


def test_without_an_fp64_run_eager_is_the_reference() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is torch.float64:
            raise TypeError("this model wants float32")
        return x.relu()

    ready = session(around(forward))
    for candidate in ("eager", "aot_eager"):
        status, parity, _, _ = ready.prepare(candidate)
        assert (status, known(parity).reference) == (Status.PASS, "eager")


@pytest.mark.parametrize(
    ("step", "status"), [(0.0, Status.PASS), (1e-5, Status.PASS), (1.0, Status.EAGER_TWO_RUNS_DIFFER)]
)
def test_runs_of_eager_that_differ(step: float, status: Status) -> None:
    drift: list[float] = []

    def forward(x: torch.Tensor) -> torch.Tensor:
        drift.append(step)
        return x + sum(drift[:3])  # after the balance of weights and the first run, all are further off

    ready = session(around(forward))
    outcome, parity, _, _ = ready.prepare("eager")
    assert outcome is status
    assert known(parity).eager_bit_equal is (step == 0.0)


class Tokens:
    """A prompt of 4 tokens, and then 1."""

    def __call__(
        self, call: Any, module: Any, args: tuple[Any, ...], lap: Callable[[], None], forced: Any
    ) -> Any:
        first = call(*args)
        lap()
        return {"tokens": torch.ones(2, 2, dtype=torch.int64), "logits": first + call(args[0][:, -1:])}


@pytest.mark.parametrize("generates", [True, False])
@pytest.mark.series
def test_sizes_that_changed_in_one_candidate_are_not_dynamic_in_the_next(*, generates: bool) -> None:
    """Dynamo keeps them by file and line, and all candidates have the same files."""
    dynamic: dict[str, list[Any]] = {"first": [], "second": []}

    def noting(name: str) -> Callable[[Program], Compiled]:
        def compile_graph(graph: torch.fx.GraphModule, _: list[Any]) -> Any:
            given = [node.meta["example_value"] for node in graph.graph.nodes if node.op == "placeholder"]
            tensors = (value for value in given if isinstance(value, torch.Tensor))
            dynamic[name].append([[isinstance(n, torch.SymInt) for n in t.shape] for t in tensors])
            return graph.forward

        return lambda program: compile_with_dynamo(program, compile_graph)

    def generating() -> Workload:
        linear = Of(lambda x, linear: linear(x.unsqueeze(-1)).sum(1), nn.Linear(1, 4))
        return Workload(module=linear, args=(torch.ones(2, 4),), drive=Tokens())

    ready = opened(
        generating if generates else parted,
        Mode.GENERATE if generates else Mode.INFERENCE,
        compilers={name: noting(name) for name in dynamic},
        accuracy=False,
    )
    for name in dynamic:
        ready.prepare(name)
    assert dynamic["first"] == dynamic["second"] != []


class Broken(nn.Linear):
    """Dynamo compiles its forward by itself, in two parts."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled = x * self.weight[0, 0]
        torch._dynamo.graph_break()
        return scaled + 1


def parted() -> Workload:
    def forward(x: torch.Tensor, part: nn.Module) -> Any:
        return part(x).sum() + part(x[:, :3]).sum()

    return Workload(module=Of(forward, Broken(4, 4)), args=(torch.ones(2, 4),))


@pytest.mark.slow
@pytest.mark.skipif(
    "isolate_recompiles" not in inspect.signature(torch.compile).parameters, reason="torch 2.13"
)
def test_candidates_do_not_use_up_each_others_limit_of_recompilations() -> None:
    """Past it, the parts of a model whose graph breaks would run in eager for the later ones."""
    names = ("first", "second", "third")
    with torch._dynamo.config.patch(recompile_limit=2):
        ready = opened(parted, Mode.INFERENCE, compilers=dict.fromkeys(names, right_graph), accuracy=False)
        numbers = [ready.prepare(name)[2] for name in names]
    assert len({(of["unique_graphs"], of["eager_fallbacks"]) for of in numbers}) == 1


# -- rounds --------------------------------------------------------------------------------------------
class Counting(nn.Module):
    """Has a Python number that Dynamo guards on, another one in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        y: torch.Tensor = self.linear(x)
        return y if self.steps > 0 else y + 1


def counting() -> Session:
    ready = session(lambda: Workload(module=Counting(), args=(torch.ones(2, 4),)), accuracy=False)
    ready.prepare("aot_eager")
    ready.prepare("eager")
    return ready


@pytest.mark.slow
def test_compiling_during_rounds_is_reported_of_the_variant_that_did() -> None:
    with torch._dynamo.config.patch(recompile_limit=1000):
        ready = counting()
        assert go_on(ready) == {"aot_eager": 3}
        assert ready.measure(1)[1] == {"aot_eager": 1}
        assert set(ready.recompilations.reasons) == {"aot_eager"}
        why = ready.recompilations.reasons["aot_eager"]
        assert re.search(r"module.steps == \d+ .*self.steps \+= 1 .*session_models.py:\d+ in forward", why)


@pytest.mark.slow
def test_a_variant_that_dynamo_gave_up_on_is_reported_for_good() -> None:
    """Past its limit of recompilations Dynamo runs eager: quietly, and as fast as eager."""
    with torch._dynamo.config.patch(recompile_limit=5):
        ready = counting()
        ready.warm_up()
        recompiled = [ready.measure(1)[1] for _ in range(6)][-1]
        assert set(recompiled) == set(go_on(ready, 1)) == {"aot_eager"}
        assert "steps == " in ready.recompilations.reasons["aot_eager"]


def test_a_failure_in_a_round_is_raised_while_the_page_names_the_variant() -> None:
    said: list[Activity] = []
    ready = session(around(lambda x: x), tell=said.append, accuracy=False)
    ready.prepare("eager")
    ready.warm_up()
    ready._variants["eager"].step = refusing(RuntimeError("broken in a round"))
    with pytest.raises(RuntimeError, match="broken in a round"):
        ready.measure(2)
    assert (said[-1].phase, said[-1].variant) == ("measure", "eager")
    ready.keep_only(())
    ready.warm_up()
    (timed_round,), _ = ready.measure(1)
    assert timed_round.order == (BASELINE,)
