"""CUDA graphs that torch skips are no success. torch's counters are set by hand: there is no GPU here."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from harness.backends.shared import inductor
from harness.failures import JobFailed
from harness.program import Compiled, Program
from harness.schema import Status
from tests.accelerator import Accelerator, session, times

REASON = "skipping cudagraphs due to mutated inputs"


def graphs(machine: Accelerator, *, skips: int, copied: int, pool: int = 0) -> Callable[[Program], Compiled]:
    """A compiler that runs eager, and counts as torch does when it records or skips CUDA graphs."""

    def compile_it(program: Program) -> Compiled:
        def plain() -> Compiled:
            return times(machine, 1.0)(program)

        compiled = inductor.with_cuda_graphs(program, "graphs", plain)
        counters["inductor"]["cudagraph_skips"] += skips
        counters["inductor"]["cudagraph_recorded_non_static_inputs"] += copied
        machine.pools += pool
        return compiled

    return compile_it


@pytest.fixture(autouse=True)
def _reason(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = SimpleNamespace(cudagraph_skip_reason=f"{REASON}\n  in foo", start_time_us=0, graph_op_count=0)
    monkeypatch.setattr("harness.counters.compilations", lambda: [metric, SimpleNamespace()])


def test_a_candidate_whose_graphs_were_all_skipped_is_not_compiled(machine: Accelerator) -> None:
    ready = session(machine, {"graphs": graphs(machine, skips=2, copied=0)})
    ready.open()
    with pytest.raises(JobFailed) as failed:
        ready.prepare("graphs")
    assert failed.value.status is Status.NOT_COMPILED
    assert str(failed.value) == f"every CUDA graph was skipped; {REASON} in foo"


@pytest.mark.parametrize("evidence", [{"copied": 1}, {"copied": 0, "pool": 100}])
def test_where_some_were_skipped_a_note_counts_them(machine: Accelerator, evidence: dict[str, int]) -> None:
    ready = session(machine, {"graphs": graphs(machine, skips=1, **evidence)})
    ready.open()
    status, _, _, notes = ready.prepare("graphs")
    assert status is Status.PASS
    assert notes == (f"graphs: 1 graphs did not become CUDA graphs (the latest: {REASON} in foo)",)


def test_copies_of_the_weights_are_named(machine: Accelerator) -> None:
    ready = session(machine, {"graphs": graphs(machine, skips=0, copied=40)})
    ready.open()
    notes = ready.prepare("graphs")[3]
    assert notes == ("graphs: every replay copies 40 tensors, the weights among them",)


@pytest.mark.parametrize(("device", "asked"), [("cuda", True), ("cpu", False)])
def test_the_proof_is_asked_for_where_there_are_cuda_graphs(
    monkeypatch: pytest.MonkeyPatch, device: str, *, asked: bool
) -> None:
    """By the mode and by the user's own setting."""
    seen: list[str] = []

    def proved(program: Program, name: str, compile_it: Callable[[], Compiled]) -> Compiled:
        seen.append(name)
        return compile_it()

    monkeypatch.setattr(inductor, "with_cuda_graphs", proved)
    monkeypatch.setattr(inductor, "device_of", lambda _: SimpleNamespace(type=device))
    program = Program(
        module=nn.Linear(2, 2), args=(torch.ones(1, 2),), kwargs={}, target=None, loss=None, training=False
    )
    for mode in ("reduce-overhead", None):
        settings: dict[str, Any] = {"triton.cudagraphs": True} if mode is None else {}
        inductor.compile_with_inductor(program, f"{mode}", mode=mode, settings=settings)
    inductor.compile_with_inductor(program, "plain")
    assert seen == (["reduce-overhead", "None"] if asked else [])
