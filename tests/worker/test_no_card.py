"""A torch with CUDA on a machine without a card: each question is answered with a sentence."""

import importlib.util
import re
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch

from harness import devices
from harness.backends.shared import inductor
from harness.probes import devices as probe
from runner.errors import UsageError
from tests.worker.planted import refusing
from torchduet import asked, compare

NONE = f"torch {torch.__version__} finds no CUDA device"


@pytest.fixture(autouse=True)
def _no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch's build for CUDA answers where there is no driver."""
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.mark.parametrize("name", ["cuda", "cuda:3"])
def test_compare_names_the_argument(name: str) -> None:
    with pytest.raises(UsageError) as raised:
        compare(torch.nn.Linear(4, 4), torch.ones(2, 4), mode="training", device=name, compilers=["eager"])
    assert str(raised.value) == f"device: {name} is not there ({NONE}); use device='cpu'"


def test_a_model_by_its_name_is_refused_before_its_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process looks for the card: this one must not use the driver."""
    monkeypatch.setattr(asked, "missing_devices", lambda names: dict.fromkeys(names, NONE))
    with pytest.raises(UsageError, match=re.escape(f"device: cuda:1 is not there ({NONE}); use")):
        compare("models.py:make", mode="training", device="cuda:1", compilers=["eager"])


def test_a_model_in_parts_on_two_devices_needs_a_name() -> None:
    """``meta`` stands for a GPU."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4, device="meta"))
    with pytest.raises(UsageError) as raised:
        compare(model, torch.ones(2, 4), mode="training", compilers=["eager"])
    says = "device: the model is on cpu and meta; move it to one of them, or name it: device='meta'"
    assert str(raised.value) == says


def test_torchs_reason_and_the_driver_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch gives its reason as a warning."""

    def too_old() -> bool:
        warnings.warn(
            "CUDA initialization: The NVIDIA driver on your system is too old (found version 12040). Please "
            "update it. (Triggered internally at x.cpp:1.)",
            stacklevel=1,
        )
        return False

    monkeypatch.setattr(torch.cuda, "is_available", too_old)
    monkeypatch.setattr(devices, "nvidia_driver", lambda: "550.54.15")
    says = (
        f"{NONE}: CUDA initialization: The NVIDIA driver on your system is too old (found version 12040); "
        "the driver is 550.54.15, and CUDA 13.2 needs 580 or newer"
    )
    assert probe.asked(["cuda"]) == {"missing": {"cuda": says}, "models": {}}


def test_a_card_without_kernels_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("CUDA error: no kernel image is available for execution on the device\nCUDA kernel")
    monkeypatch.setattr(devices.Cuda, "count", lambda _: 1)
    monkeypatch.setattr(devices.Cuda, "open", refusing(error))
    says = "its first operation fails: CUDA error: no kernel image is available for execution on the device"
    assert probe.asked(["cuda"])["missing"]["cuda"].startswith(says)


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        (False, "inductor needs Triton for cuda, and it is not installed (pip install triton)"),
        (True, "inductor needs a GPU that Triton supports, and finds none"),
    ],
)
@pytest.mark.parametrize("place", ["torch.utils._triton", "torch._inductor.utils"])  # the second: torch 2.0
def test_inductor_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, place: str, expected: str, *, installed: bool
) -> None:
    triton = object() if installed else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: triton)
    monkeypatch.setitem(sys.modules, "torch.utils._triton", None)
    monkeypatch.setitem(sys.modules, place, SimpleNamespace(has_triton=lambda: False))
    assert inductor.why_unavailable("cuda") == expected
