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
from tests.factories import Patch
from tests.worker.planted import refusing
from torchduet import api, compare

NONE = f"torch {torch.__version__} finds no CUDA device"


@pytest.fixture(autouse=True)
def _no_card(monkeypatch: Patch) -> None:
    """As torch's build for CUDA answers where there is no driver."""
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.mark.parametrize("name", ["cuda", "cuda:3"])
def test_compare_names_the_argument(monkeypatch: Patch, name: str) -> None:
    """Also of a model by its name, before its file is read: another process looks for the card."""
    says = f"^{re.escape(f'device: {name} is not there ({NONE}); use device=')}"
    with pytest.raises(UsageError, match=says):
        compare(torch.nn.Linear(4, 4), torch.ones(2, 4), mode="training", device=name, compilers=["eager"])
    monkeypatch.setattr(api, "missing_devices", lambda names: dict.fromkeys(names, NONE))
    with pytest.raises(UsageError, match=says):
        compare("models.py:make", mode="training", device=name, compilers=["eager"])


def test_a_model_in_parts_on_two_devices_needs_a_name() -> None:
    """``meta`` stands for a GPU."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4, device="meta"))
    with pytest.raises(UsageError, match=r"^device: the model is on cpu and meta; move it to one of them"):
        compare(model, torch.ones(2, 4), mode="training", compilers=["eager"])


def test_torchs_reason_and_the_driver_are_told(monkeypatch: Patch) -> None:
    """torch gives its reason as a warning."""
    reason = "CUDA initialization: The NVIDIA driver on your system is too old (found version 12040)"

    def too_old() -> bool:
        warnings.warn(f"{reason}. Please update it. (Triggered internally at x.cpp:1.)", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", too_old)
    monkeypatch.setattr(devices, "nvidia_driver", lambda: "550.54.15")
    says = f"{NONE}: {reason}; the driver is 550.54.15, and CUDA 13.2 needs 580 or newer"
    assert probe.asked(["cuda"]) == {"missing": {"cuda": says}, "models": {}}


def test_a_card_without_kernels_is_missing(monkeypatch: Patch) -> None:
    error = RuntimeError("CUDA error: no kernel image is available for execution on the device\nCUDA kernel")
    monkeypatch.setattr(devices.Cuda, "count", lambda _: 1)
    monkeypatch.setattr(devices.Cuda, "open", refusing(error))
    says = "its first operation fails: CUDA error: no kernel image is available for execution on the device"
    assert probe.asked(["cuda"])["missing"]["cuda"].startswith(says)


@pytest.mark.parametrize(
    ("triton", "expected"),
    [
        (None, "inductor needs Triton for cuda, and it is not installed (pip install triton)"),
        (object(), "inductor needs a GPU that Triton supports, and finds none"),
    ],
)
@pytest.mark.parametrize("place", ["torch.utils._triton", "torch._inductor.utils"])  # the second: torch 2.0
def test_inductor_says_what_is_missing(monkeypatch: Patch, place: str, triton: object, expected: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: triton)
    monkeypatch.setitem(sys.modules, "torch.utils._triton", None)
    monkeypatch.setitem(sys.modules, place, SimpleNamespace(has_triton=lambda: False))
    assert inductor.why_unavailable("cuda") == expected
