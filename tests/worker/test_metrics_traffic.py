"""Bytes of known steps, and the memory's speed by an injected clock."""

import itertools

import pytest
import torch
from torch import nn

from harness.metrics import Ended, of_eager_step, peak_rates, traffic
from harness.schema import BASELINE, WHOLE, Mode
from harness.workload import Workload
from tests.factories import make_job
from tests.worker.planted import CPU, Trial

ROWS, IN, OUT = 32, 8, 16
FLOAT = 4  # bytes


def counted(step: torch.nn.Module, *given: torch.Tensor) -> int:
    counter = traffic.traffic_counter()
    with torch.no_grad(), counter:
        step(*given)
    return int(counter.bytes)


def test_a_layer_reads_weight_bias_and_input_and_writes_its_output() -> None:
    expected = FLOAT * (OUT * IN + OUT + ROWS * IN + ROWS * OUT)
    assert counted(nn.Linear(IN, OUT), torch.ones(ROWS, IN)) == expected


def test_what_works_in_place_reads_and_writes_and_a_view_does_nothing() -> None:
    x = torch.ones(ROWS, IN)
    counter = traffic.traffic_counter()
    with counter:
        x.view(-1)[:4].unsqueeze(0)
    assert counter.bytes == 0
    with counter:
        x.relu_()
    assert counter.bytes == 2 * FLOAT * ROWS * IN


def test_training_moves_more_than_inference_and_all_of_it_is_reported() -> None:
    def found(mode: Mode) -> dict[str, object]:
        work = Workload(
            module=nn.Linear(IN, OUT), args=(torch.ones(ROWS, IN),), loss=lambda output, _: output.sum()
        )
        subject = Trial(workload=work, dtype="float32", mode=mode).variant()
        job = make_job(mode=mode, batch_size=ROWS)
        ended = Ended(job=job, device=CPU, variants={BASELINE: subject}, synchronize=lambda: None)
        return {**of_eager_step(ended, [("traffic", traffic)]), **peak_rates.measure(ended)[WHOLE]}

    training, inference = found(Mode.TRAINING), found(Mode.INFERENCE)
    assert isinstance(training["bytes_per_step"], int)
    assert isinstance(inference["bytes_per_step"], int)
    assert training["bytes_per_step"] > 2 * inference["bytes_per_step"] > 0
    speed = training["measured_bandwidth_bytes_per_s"]
    assert isinstance(speed, float)
    assert 0 < speed < 1e13


def test_the_best_copy_counts_and_both_directions_do() -> None:
    ticks = itertools.count()
    # every look at the clock is a second later: three copies, a second each
    assert peak_rates.bandwidth(1000, CPU, lambda: None, lambda: float(next(ticks))) == pytest.approx(2000)
