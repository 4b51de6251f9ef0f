"""A torch with CUDA on a machine without a card: each question is answered with a sentence."""

import importlib.util
import re
import subprocess
import sys
import tarfile
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness import devices
from harness.backends.shared import inductor
from harness.probes import devices as probe
from runner.errors import UsageError
from tests.gpu import __main__ as smoke
from tests.gpu import conftest
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
    assert smoke.refusal("cuda", None) == (
        f"--devices: cuda is not there ({says}); --devices=cpu has the CPU stand in"
    )


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


# -- make gpu-smoke ---------------------------------------------------------------------------


def test_a_warning_is_no_error_in_its_tests() -> None:
    """Elsewhere it is one. On a card, inductor warns of TF32 in each product of float32."""
    marks: list[pytest.MarkDecorator] = []
    item: Any = SimpleNamespace(path=Path(conftest.__file__), add_marker=marks.append)
    conftest.pytest_collection_modifyitems([item])
    assert ("filterwarnings", ("default",)) in [(mark.name, mark.args) for mark in marks]


def test_the_smoke_refuses_with_a_sentence_and_makes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new"
    for words, says in (
        (["--devices=cuda"], f"--devices: cuda is not there ({NONE}); --devices=cpu has the CPU stand in"),
        (["--devices=gpu"], "--devices: there is no device called 'gpu'; devices are cpu, cuda, xpu, mps"),
    ):
        assert smoke.main([*words, f"--output-dir={folder}"]) == 2
        assert capsys.readouterr().err == f"error: {says}\n"
    assert smoke.main(["--devices=cpu", f"--output-dir={tmp_path}"]) == 2
    assert capsys.readouterr().err == f"error: --output-dir: {tmp_path} exists already; give a new folder\n"
    assert list(tmp_path.iterdir()) == []


def test_the_smoke_tells_slow_from_wrong_and_always_leaves_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def part(name: str, code: str, limit_s: float) -> smoke.Part:
        return smoke.Part(name=name, words=("-c", code), limit_s=limit_s, records=False)

    endless = "import time; time.sleep(600)"
    planned = [part("good", "", 60), part("late", "", 1e-4), part("bad", "exit(3)", 60)]
    monkeypatch.setattr(smoke, "parts", lambda _: [*planned, part("endless", endless, 0.1)])
    monkeypatch.setattr(smoke, "PATIENCE", 1e6)
    monkeypatch.setattr(smoke, "FACTS", ((sys.executable, "-c", "print('a fact')"), ("no-such-program",)))
    words = ["--devices=cpu", "--only=good,late,bad", f"--output-dir={tmp_path / 'a'}"]
    assert smoke.main(words) == 1
    assert capsys.readouterr().out.endswith("look at: bad\nslow, which is no fault: late\n")
    monkeypatch.setattr(smoke, "PATIENCE", 1.0)
    assert smoke.main(["--devices=cpu", "--only=endless", f"--output-dir={tmp_path / 'b'}"]) == 1
    assert "it was ended after 0 s" in capsys.readouterr().out
    monkeypatch.setattr(devices.Device, "facts", refusing(RuntimeError("CUDA error: device not ready")))
    with pytest.raises(RuntimeError):
        smoke.main(["--devices=cpu", f"--output-dir={tmp_path / 'c'}"])
    for name in "abc":
        with tarfile.open(tmp_path / f"{name}.tar.gz") as packed:
            assert {f"{name}/facts.txt", f"{name}/summary.json"} <= {*packed.getnames()}
    assert "a fact" in (tmp_path / "c" / "facts.txt").read_text()


def test_ctrl_c_ends_the_smokes_part_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = [sys.executable, "-c", "import time; time.sleep(600)"]
    process = subprocess.Popen(endless, start_new_session=True)
    plain, interrupts = process.wait, iter([KeyboardInterrupt()])

    def wait(timeout: float | None = None) -> int:
        for interrupt in interrupts:
            raise interrupt
        return plain(timeout)

    monkeypatch.setattr(process, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        smoke.ended(process, 60.0)
    assert process.returncode


def record_of(ratio: float = 1.0, reference: str = "fp64", peak: int = 100, **more: Any) -> dict[str, Any]:
    """Of eager beside eager on a card with NVML."""
    return {
        "job": {"device": "cuda"},
        "candidate": "eager",
        "parity": {"reference": reference},
        "metrics": {"baseline_peak_memory_bytes": 100, "candidate_peak_memory_bytes": peak, **more},
        "environment": {"gpu_power_limit_w": 700.0},
        "samples": {"baseline_s": [ratio] * 3, "candidate_s": [1.0] * 3},
    }


@pytest.mark.parametrize(
    ("record", "wrong"),
    [
        (record_of(gpu_clock_max_mhz=1980), []),
        (record_of(), ["NVML answers, and no clock was read"]),
        (record_of(1.02, gpu_clock_max_mhz=1980), ["eager over eager is 1.020"]),
        (record_of(reference="eager", gpu_clock_max_mhz=1980), ["there is no fp64 reference"]),
        (record_of(peak=10, gpu_clock_max_mhz=1980), ["its peak memory is 0.10 of eager's"]),
    ],
)
def test_the_smoke_sees_what_is_wrong_with_a_large_model(record: dict[str, Any], wrong: list[str]) -> None:
    assert [*smoke.of_large(record)] == wrong


def test_the_smoke_has_the_same_parts_on_a_cpu_and_does_not_ask_it_for_cuda_graphs() -> None:
    real, standing_in = smoke.parts("cuda:1"), smoke.parts("cpu")
    assert [(part.name, part.limit_s) for part in real] == [(part.name, part.limit_s) for part in standing_in]
    words = [word for part in standing_in for word in part.words]
    assert not [word for word in words if "reduce_overhead" in word or "max_autotune" in word]
    assert any("reduce_overhead" in word for part in real for word in part.words)
    assert sum("inductor" in word for word in words) == 1
