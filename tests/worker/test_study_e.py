"""The named commands of an earlier benchmark as what they are today: each is run on a small model.

    -dcuda --isolate -n100 --speedup-ts                     torchscript, inference
    -dcuda --inductor-settings --float32 -n50 --inductor    inductor_reduce_overhead, inference
    --float32 --training --nvfuser --speedup-dynamo-ts      dynamo_ts, training
    --training --nvfuser --accuracy-aot-ts-mincut           aot_ts_mincut, training
    --training --dtypes=float32 --compilers=aot_nvfuser     aot_ts, training

NVFuser itself is in no TorchScript of today; the compilers are.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from harness.failures import JobFailed
from harness.schema import BASELINE, Case, CompilerOptions, Job, Mode, Parity, Protocol, Status
from harness.worker.session import Session
from tests.worker.planted import silent, workload


@dataclass(frozen=True)
class Command:
    compiler: str
    mode: Mode
    repeat: int = 3


SCRIPT_INFERENCE = Command("torchscript", Mode.INFERENCE)
INDUCTOR_WITH_CUDA_GRAPHS = Command("inductor_reduce_overhead", Mode.INFERENCE)
SCRIPT_ON_DYNAMO = Command("dynamo_ts", Mode.TRAINING)
SCRIPT_ON_AOT_MINCUT = Command("aot_ts_mincut", Mode.TRAINING)
SCRIPT_ON_AOT = Command("aot_ts", Mode.TRAINING)
FUSED = (SCRIPT_ON_DYNAMO, SCRIPT_ON_AOT_MINCUT, SCRIPT_ON_AOT)


pytestmark = pytest.mark.usefixtures("fresh_compiler")


def job_of(command: Command, **options: Any) -> Job:
    case = Case(suite="none", name="tokens", mode=command.mode, batch_size=4, published_batch_size=4)
    return Job(
        case=case,
        device="cpu",
        dtype="float32",
        candidates=(command.compiler,),
        protocol=Protocol(min_sample_s=0.0, repeat=command.repeat, threads=1),
        options=CompilerOptions(**options),
    )


def measured(command: Command, job: Job) -> tuple[Parity, tuple[str, ...]]:
    """Runs it as a worker would: parity first, then rounds, in which both sides were timed."""
    session = Session(job, silent, lambda _: workload("tokens"))
    session.open()
    status, parity, _, notes = session.prepare(command.compiler)
    assert status is Status.PASS, parity
    assert parity is not None
    session.warm_up()
    rounds, recompiled = session.measure(command.repeat)
    assert len(rounds) == command.repeat
    assert all(one.seconds.keys() == {BASELINE, command.compiler} for one in rounds)
    assert recompiled == {}
    return parity, notes


@pytest.mark.parametrize("command", [SCRIPT_INFERENCE, *FUSED], ids=lambda c: c.compiler)
def test_the_command_runs_today(command: Command) -> None:
    parity, notes = measured(command, job_of(command))
    assert parity.failed == 0
    assert any("scripted" in note or "traced" in note for note in notes)


@pytest.mark.long
def test_inductor_with_cuda_graphs_runs_and_says_what_it_is_on_a_cpu() -> None:
    _, notes = measured(INDUCTOR_WITH_CUDA_GRAPHS, job_of(INDUCTOR_WITH_CUDA_GRAPHS))
    assert any("CUDA graphs need CUDA" in note for note in notes)


@pytest.mark.parametrize("command", FUSED, ids=lambda c: c.compiler)
def test_asking_for_nvfuser_ends_in_one_clear_sentence(command: Command) -> None:
    session = Session(job_of(command, fuser="nvfuser"), silent, lambda _: workload("mlp"))
    session.open()
    with pytest.raises(JobFailed) as failed:
        session.prepare(command.compiler)
    assert failed.value.status is Status.FAIL_TO_RUN
    assert failed.value.failure.message.endswith("the compiler thunder still has it (CUDA)")
