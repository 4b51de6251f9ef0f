"""FLOPs, activations, items, peaks, energy, traffic and memory of known models."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from harness.hardware.peaks import data_sheet_peak
from harness.metrics import (
    Ended,
    activations,
    at_the_end,
    energy,
    flops,
    items,
    observing,
    of_eager_step,
    peak_rates,
    traffic,
)
from harness.precision import precision
from harness.schema import BASELINE, WHOLE, CompilerOptions, Extras, Mode, Protocol
from harness.timing.measure import STREAM
from harness.workload import Workload
from tests.factories import Patch, known, make_job
from tests.worker.planted import CPU, Of, Trial, opened, workload

BATCH, IN, OUT = 32, 8, 16


def ended(work: Workload, mode: Mode, **case: Any) -> Ended:
    subject = Trial(workload=work, dtype="float32", mode=mode).variant()
    job = make_job(mode=mode, batch_size=BATCH, **case)
    return Ended(job=job, device=CPU, variants={BASELINE: subject}, synchronize=lambda: None)


def counted(work: Workload, mode: Mode, **modules: Any) -> dict[str, Any]:
    """What these metrics count in a step of eager."""
    return of_eager_step(ended(work, mode), [*modules.items()])


def summed(module: nn.Module) -> Workload:
    return Workload(module=module, args=(torch.ones(BATCH, IN),), loss=lambda output, _: output.sum())


def linear() -> Workload:
    return summed(nn.Linear(IN, OUT))


def with_relu() -> Workload:
    return summed(nn.Sequential(nn.Linear(IN, OUT), nn.ReLU(), nn.Linear(OUT, 4)))


# -- FLOPs ---------------------------------------------------------------------------------------
def test_a_layers_flops_by_hand() -> None:
    product = 2 * BATCH * IN * OUT
    assert counted(linear(), Mode.INFERENCE, flops=flops) == {"flops_per_step": product}
    # backward: of the weight alone, since the input needs no gradient
    assert counted(linear(), Mode.TRAINING, flops=flops) == {"flops_per_step": 2 * product}


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
def test_a_grouped_convolution_counts_its_groups_once_forward_and_backward(kind: type[nn.Conv1d]) -> None:
    x = torch.ones(BATCH, IN, 5, requires_grad=True)
    work = replace(summed(kind(IN, OUT, 1, groups=4)), args=(x,))
    product = 2 * BATCH * 5 * IN * OUT // 4
    assert counted(work, Mode.INFERENCE, flops=flops) == {"flops_per_step": product}
    assert counted(work, Mode.TRAINING, flops=flops) == {"flops_per_step": 3 * product}


def test_attention_on_a_cpu_is_counted() -> None:
    heads, length, width = 2, 16, 8
    attention = Of(lambda x: nn.functional.scaled_dot_product_attention(x, x, x))
    x = torch.ones(BATCH, heads, length, width, requires_grad=True)
    work = replace(summed(attention), args=(x,))
    forward = 2 * 2 * BATCH * heads * length * length * width
    assert counted(work, Mode.INFERENCE, flops=flops) == {"flops_per_step": forward}
    assert counted(work, Mode.TRAINING, flops=flops)["flops_per_step"] >= 3 * forward


def test_metrics_that_share_a_step_see_what_each_would_see_alone() -> None:
    modules = {"activations": activations, "flops": flops, "traffic": traffic}
    alone: dict[str, Any] = {}
    for name, module in modules.items():
        alone |= counted(with_relu(), Mode.TRAINING, **{name: module})
    assert counted(with_relu(), Mode.TRAINING, **modules) == alone
    assert len(alone) == 3


def test_one_that_breaks_the_shared_step_costs_the_others_nothing(monkeypatch: Patch) -> None:
    class Broken(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, *_: object, **__: object) -> None:
            raise RuntimeError("no such operation")

    monkeypatch.setattr(traffic, "traffic_counter", Broken)
    metrics = at_the_end(ended(linear(), Mode.TRAINING))[WHOLE]
    assert metrics["flops_per_step"] == 2 * 2 * BATCH * IN * OUT
    assert "saved_activation_bytes" in metrics
    assert "bytes_per_step" not in metrics


# -- activations and items -----------------------------------------------------------------------
def test_what_a_forward_keeps_beside_its_inputs() -> None:
    # the ReLU's output, for its own backward and for the second layer's: one storage
    metrics = counted(with_relu(), Mode.TRAINING, activations=activations)
    assert metrics == {"saved_activation_bytes": BATCH * OUT * 4}
    assert counted(with_relu(), Mode.INFERENCE, activations=activations) == {}


@pytest.mark.parametrize(
    ("inputs", "new_tokens", "expected"),
    [
        ([torch.zeros(4, 10, dtype=torch.int64)], None, (40, "tokens")),
        ([torch.zeros(4, 10), torch.zeros(4, 10, dtype=torch.int64)], None, (40, "tokens")),
        ([torch.zeros(4, 3, 8, 8)], None, (4, "images")),
        ([torch.zeros(4, 7)], None, (4, "samples")),
        ([torch.zeros(4, 10, dtype=torch.int64)], 5, (20, "new tokens")),
        ([torch.tensor(1.0)], None, None),
        ([], None, None),
    ],
)
def test_items(inputs: list[torch.Tensor], new_tokens: int | None, expected: object) -> None:
    assert items.items(inputs, new_tokens) == expected


# -- peaks ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "kind", "tflop_per_s"),
    [
        ("NVIDIA H200", "bfloat16", 989.5),
        ("NVIDIA H100 80GB HBM3", "tf32", 494.5),
        ("NVIDIA A100-SXM4-80GB", "float16", 312),
        ("NVIDIA L4", "bfloat16", 121),
        ("AMD Instinct MI300X", "tf32", 653.7),
        ("Tesla V100-SXM2-16GB", "float16", 125),
        ("Tesla V100-SXM2-16GB", "bfloat16", None),
    ],
)
def test_the_data_sheets(name: str, kind: str, tflop_per_s: float | None) -> None:
    peak = known(data_sheet_peak(name))
    assert peak.source
    assert peak.flop_per_s(kind) == (None if tflop_per_s is None else tflop_per_s * 1e12)


def test_the_rate_of_a_data_sheet_that_a_precision_takes() -> None:
    for dtype, tf32, unit in (
        *(("float32", True, "tf32"), ("float32", False, "float32"), ("amp_bfloat16", True, "bfloat16")),
    ):
        assert peak_rates.unit_of(replace(precision(dtype, "cpu"), tf32=tf32)) == unit


def test_what_has_no_sheet_has_no_peak() -> None:
    others = "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GH200 480GB", "NVIDIA GeForce RTX 4090 Laptop GPU"
    assert not any(map(data_sheet_peak, (*others, "NVIDIA A10G", "AMD EPYC", "")))


# -- energy --------------------------------------------------------------------------------------


def test_energy_is_measured_in_the_first_process_if_asked(monkeypatch: Patch) -> None:
    """With as many steps between two waits as in the rounds."""
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(energy, "gpu_of", lambda _: SimpleNamespace(energy_j=lambda: 0.0))
    monkeypatch.setattr(energy, "per_step_j", lambda *_, **how: asked.append(how))
    plain = ended(linear(), Mode.TRAINING)
    for wanted, process in ((False, 0), (True, 1), (True, 0)):
        assert not asked
        protocol = Protocol(process=process)
        at_the_end(replace(plain, job=replace(plain.job, extras=Extras(energy=wanted), protocol=protocol)))
    assert asked == [{"stream": STREAM}]


# -- traffic --------------------------------------------------------------------------------------
FLOAT = 4  # bytes


def test_what_works_in_place_reads_and_writes_and_a_view_does_nothing() -> None:
    x = torch.ones(BATCH, IN)
    counter = traffic.traffic_counter()
    with counter:
        x.view(-1)[:4].unsqueeze(0)
    assert counter.bytes == 0
    with counter:
        x.relu_()
    assert counter.bytes == 2 * FLOAT * BATCH * IN


def test_a_layer_reads_weight_bias_and_input_and_writes_its_output_and_training_moves_more() -> None:
    inference = counted(linear(), Mode.INFERENCE, traffic=traffic)["bytes_per_step"]
    assert inference == FLOAT * (OUT * IN + OUT + BATCH * IN + BATCH * OUT)
    assert counted(linear(), Mode.TRAINING, traffic=traffic)["bytes_per_step"] > 2 * inference


# -- peak memory of a step ------------------------------------------------------------------------
MIB = 1 << 20


def step_peak(work: Callable[[], object]) -> Any:
    with observing("step", CPU) as numbers:
        work()
    return numbers["step_peak_bytes"]


def block(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8)


def test_the_peak_is_of_what_lives_at_once() -> None:
    assert step_peak(lambda: None) == 0
    assert step_peak(lambda: block(3)) == 3 * MIB

    def work() -> None:
        first = block(4)
        del first
        second, third = block(2), block(3)
        del second
        fourth = block(1)
        del third, fourth

    assert step_peak(work) == 5 * MIB


def test_what_was_there_before_does_not_count_and_its_release_hides_nothing() -> None:
    before = [block(8)]

    def work() -> None:
        before.clear()
        block(2)

    assert step_peak(work) == 2 * MIB


@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING])
def test_the_peak_of_several_batches_has_no_copies_of_their_results(mode: Mode) -> None:
    """Such copies are compared after the rounds."""
    options = CompilerOptions(dynamic_batch=True)
    session = opened(lambda: workload("mlp"), mode, options=options, accuracy=False)
    numbers: Any = session.finish()[1][BASELINE]
    peak = step_peak(session._variants[BASELINE].step)
    assert numbers["peak_memory_bytes"] == numbers["persistent_bytes"] + peak
