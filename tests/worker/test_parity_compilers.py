"""Parity of real compilers, right ones and such with one operation scaled."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from harness.backends import load_backend
from harness.parity.rule import compare
from harness.schema import Mode
from tests.worker.planted import MODELS, put, results, trial, wrong_by

TRAINING, INFERENCE = Mode.TRAINING, Mode.INFERENCE


# -- real compilers ------------------------------------------------------------------------------------

SETTINGS = list(product(MODELS, ("float32", "bfloat16", "amp"), (TRAINING, INFERENCE)))
# capture alone changes no kernel: reduced precision adds least in inference, where there is least to sum
CAPTURED = [s for s in SETTINGS if s[1] == "float32" or s[2] is TRAINING]


@pytest.mark.parametrize(
    ("name", "dtype", "mode"),
    [s if s[1] == "float32" else pytest.param(*s, marks=pytest.mark.slow) for s in CAPTURED],
)
def test_no_false_alarm_of_captured_graphs(name: str, dtype: str, mode: Mode) -> None:
    found = trial(name, dtype, mode).judge(load_backend("aot_eager"))
    assert found.failed == 0, found.worst
    assert found.reference == "fp64"


@pytest.mark.long
@pytest.mark.parametrize(("name", "dtype", "mode"), SETTINGS)
def test_no_false_alarm_of_inductor(name: str, dtype: str, mode: Mode) -> None:
    """One compilation, ten draws of weights and inputs."""
    torch._dynamo.reset()
    compiled = trial(name, dtype, mode).variant()
    compiled.use(load_backend("inductor")(compiled.program).forward)
    for seed in range(10):
        subject = trial(name, dtype, mode, seed)
        put(compiled, subject.variant())
        found = compare(subject.reference(), results(compiled))
        assert found.failed == 0, (seed, found.worst)


@pytest.mark.parametrize(
    ("name", "part", "mode"),
    [
        ("mlp", "addmm", TRAINING),
        ("mlp", "addmm", INFERENCE),
        ("conv", "convolution", TRAINING),
        ("conv", "convolution", INFERENCE),
        ("tokens", "embedding", TRAINING),
        ("tokens", "layer_norm", INFERENCE),
        ("attention", "attention", INFERENCE),
    ],
)
def test_one_operation_off_by_a_hundredth_is_caught(name: str, part: str, mode: Mode) -> None:
    subject = trial(name, "float32", mode)
    assert subject.judge(wrong_by(1.0, part)).failed == 0
    assert subject.judge(wrong_by(1.01, part)).failed > 0


@pytest.mark.parametrize(
    ("name", "part"), [("mlp", "mm"), ("conv", "convolution_backward"), ("tokens", "mm")]
)
def test_one_operation_of_the_backward_off_by_a_hundredth_is_caught(name: str, part: str) -> None:
    subject = trial(name)
    assert subject.judge(wrong_by(1.0, part, backward=True)).failed == 0
    assert subject.judge(wrong_by(1.01, part, backward=True)).failed > 0
