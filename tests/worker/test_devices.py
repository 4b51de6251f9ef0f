"""What differs between devices, with fake modules in torch's place: this runs where there is no GPU."""

import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness import devices
from harness.codec import to_json
from harness.failures import is_out_of_memory
from harness.hardware.nvml import Gpu, gpu_of
from harness.metrics import gpu_clock, observing, trace
from harness.probes import environment as probe
from harness.schema import BASELINE, Protocol
from harness.timing.rounds import Rounds
from harness.timing.step import Variant
from harness.worker import limits
from harness.worker.environment import describe, remarks_on_process
from harness.worker.localize.script import NOT_RUN
from harness.worker.localize.search import replay
from tests.factories import Capture, Patch, known, make_job
from tests.worker.planted import CPU, refusing, trial

SEGMENTS = [
    {"device": 1, "segment_pool_id": (0, 0), "total_size": 1},
    {"device": 1, "segment_pool_id": (0, 1), "total_size": 20},
    {"device": 1, "segment_pool_id": [3, 0], "total_size": 300},
    {"device": 0, "segment_pool_id": (0, 1), "total_size": 4000},
]


class Fake(SimpleNamespace):
    """A ``torch.cuda`` that notes its calls. ``left``: errors to raise, one a call of ``synchronize``."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.left: list[Exception] = []
        self.there = 2
        super().__init__(
            is_available=lambda: self.there > 0,
            is_initialized=lambda: True,
            device_count=lambda: self.there,
            memory_stats=lambda device: {"num_alloc_retries": 3},
            memory_snapshot=lambda: SEGMENTS,
            empty_cache=lambda: self.calls.append("empty"),
            get_device_properties=lambda device: SimpleNamespace(
                L2_cache_size=50 << 20, major=9, minor=0, multi_processor_count=132
            ),
            mem_get_info=lambda device: (70 << 30, 80 << 30),
            get_device_name=lambda device: f"Fake {device}",
            current_device=lambda: 1,
            set_device=lambda device: self.calls.append(f"set {device}"),
            get_rng_state_all=lambda: ["state"],
            set_rng_state_all=lambda states: self.calls.append(f"generators {states}"),
        )

    def synchronize(self, device: object) -> None:
        self.calls.append(f"synchronize {device}")
        if self.left:
            raise self.left.pop(0)


@pytest.fixture
def fake(monkeypatch: Patch) -> Fake:
    fake_module = Fake()
    monkeypatch.setattr(devices.Cuda, "_module", lambda _: fake_module)
    return fake_module


def test_a_device_that_is_not_there_is_named_and_those_that_are_counted(fake: Fake) -> None:
    for name, why in (("cuda:1", None), ("cuda:2", "torch finds 2 CUDA devices"), ("cpu", None)):
        assert devices.named(name).why_missing() == why
    facts = probe.packages()
    assert facts["devices"] == devices.counts() == {"cuda": 2, "xpu": 0}
    assert facts["cuda"] == torch.version.cuda
    fake.there = 0
    assert devices.named("cuda").why_missing() == f"torch {torch.__version__} finds no CUDA device"
    assert devices.best() == "cpu"


def test_pools_retries_and_cache_are_those_of_this_device(fake: Fake, monkeypatch: Patch) -> None:
    device = devices.named("cuda:1")
    assert device.pool_bytes() == 320
    assert device.allocator_counts() == {"allocator_retries": 3}  # this torch does not count the others
    device.empty_cache()
    assert fake.calls == ["empty"]
    assert (devices.CPU.pool_bytes(), devices.CPU.allocator_counts()) == (None, {})
    vars(fake)["memory_snapshot"] = lambda: [{"device": 1, "total_size": 1}]
    assert device.pool_bytes() is None  # torch before 2.1
    monkeypatch.setattr(torch, "ones", lambda *_, device: torch.zeros(1))
    fake.left.append(torch.OutOfMemoryError("CUDA out of memory"))
    assert device.healthy()


def test_the_default_device_is_guessed_from_the_drivers_files(tmp_path: Path, monkeypatch: Patch) -> None:
    for name in devices.HIDING:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "dev").mkdir()
    for file, present in (("nvidiactl", False), ("nvidia-uvm", False), ("kfd", True), ("nvidia3", True)):
        (tmp_path / "dev" / file).touch()
        assert devices.Cuda.seems_present(tmp_path) is present
    for visible, present in (("", False), ("-1", False), ("0", True)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert devices.Cuda.seems_present(tmp_path) is present


def test_generators_and_the_current_device_are_put_back(fake: Fake, monkeypatch: Patch) -> None:
    """A device that is not in use is not started, but gets the seed that it would have started with."""
    torch.manual_seed(5)
    restore = devices.remember()
    expected = torch.rand(2)
    torch.rand(3)
    restore()
    assert torch.equal(torch.rand(2), expected)
    assert fake.calls[:2] == ["generators ['state']", "set 1"]
    seeds: list[int] = []
    monkeypatch.setattr(fake, "is_initialized", lambda: False)
    monkeypatch.setattr(fake, "manual_seed_all", seeds.append, raising=False)
    restore = devices.named("cuda").remember()
    torch.manual_seed(8)
    restore()
    assert seeds == [5]


def test_libraries_and_backends_without_memory_are_out_of_memory() -> None:
    for words in (
        "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "GET was unable to find an engine to execute this computation",
        "out of memory",
    ):
        assert is_out_of_memory(RuntimeError(words))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        torch.compile(torch.nn.Linear(2, 2), backend=refusing(MemoryError()))(torch.randn(1, 2))
    assert is_out_of_memory(caught.value)


def test_the_environment_has_libraries_driver_and_card_and_says_what_nobody_has_tried(
    fake: Fake, nvml: Callable[..., None], monkeypatch: Patch
) -> None:
    nvml(pynvml())
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 92600)
    monkeypatch.setattr(devices, "nvidia_driver", lambda: "570.86.15")
    facts = describe(torch.device("cuda:1"))
    assert (facts["cudnn"], facts["driver"]) == (92600, "570.86.15")
    assert (facts["gpu_capability"], facts["gpu_multiprocessors"]) == ("9.0", 132)
    assert facts["gpu_power_limit_w"] == 350.0
    assert (facts["gpu_memory_bytes"], facts["gpu_memory_free_bytes"]) == (80 << 30, 70 << 30)
    assert "device_untried" not in facts.keys() | describe(CPU).keys()
    untried = describe(torch.device("xpu"))["device_untried"]
    assert untried == "nobody has tried xpu yet: check by hand"


class NVMLError(Exception):
    pass


def pynvml(*, works: bool = True, newer: bool = True, readings: int = 800) -> SimpleNamespace:
    """It knows one card, or its driver does not answer.

    ``newer``: whether it has the newer call. Of its clock it gives so many ``readings``.
    """
    refuse = refusing(NVMLError())
    clocks = iter(range(1000, 1000 + 10 * readings, 10))
    reasons = {"nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0x004} if newer else {}
    return SimpleNamespace(
        **reasons,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x020,
        nvmlDeviceGetClockInfo=lambda handle, kind: next(clocks),
        NVMLError=NVMLError,
        NVML_CLOCK_SM=1,
        nvmlInit=(lambda: None) if works else refuse,
        nvmlDeviceGetHandleByUUID=lambda uuid: f"handle of {uuid}",
        nvmlDeviceGetMaxClockInfo=lambda handle, kind: 1980,
        nvmlDeviceGetEnforcedPowerLimit=lambda handle: 350_000,
        nvmlDeviceGetPowerUsage=lambda handle: 300_000,
        nvmlDeviceGetEccMode=lambda handle: (1, 1),
        nvmlDeviceGetPersistenceMode=lambda handle: 1,
        nvmlDeviceGetMigMode=refuse,
        nvmlDeviceGetTotalEnergyConsumption={"handle of GPU-1234": 5000}.__getitem__,
    )


@pytest.fixture
def nvml(monkeypatch: Patch) -> Callable[[SimpleNamespace | None], None]:
    """A build for CUDA, with this ``pynvml``."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="1234"))
    return partial(monkeypatch.setitem, sys.modules, "pynvml")


def test_readings_are_those_of_the_same_uuid(nvml: Callable[..., None], monkeypatch: Patch) -> None:
    cuda = torch.device("cuda:1")
    nvml(pynvml())
    gpu = known(gpu_of(cuda))
    assert (gpu.energy_j(), gpu.power_w()) == (5.0, 300.0)
    for newer, reason in ((True, "power cap"), (False, "software temperature limit")):
        assert Gpu(pynvml(newer=newer), None).throttle_reasons() == (reason,)
    facts = {"clock_limit_mhz": 1980, "power_limit_w": 350.0, "ecc": True, "persistence": True}
    assert gpu.facts() == {**{f"gpu_{name}": value for name, value in facts.items()}, "gpu_mig": None}
    for missing in (pynvml(works=False), None):  # None: not installed
        nvml(missing)
        assert gpu_of(cuda) is None
    nvml(pynvml())
    monkeypatch.setattr(torch.version, "cuda", None)  # ROCm
    assert gpu_of(cuda) is None


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"self_device_time_total": 7.0}, 7.0),
        ({"self_cuda_time_total": 5.0}, 5.0),  # torch 2.0 to 2.2
        ({"self_device_time_total": 7.0, "device_type": "DeviceType.CPU"}, 0.0),
        ({"self_device_time_total": 7.0, "is_user_annotation": True}, 0.0),
    ],
)
def test_a_trace_counts_the_devices_kernels(event: dict[str, Any], expected: float) -> None:
    whole = SimpleNamespace(**{"device_type": "DeviceType.CUDA", **event})
    assert trace._time_us(whole, torch.device("cuda")) == expected


def test_the_drivers_version_is_in_its_file(tmp_path: Path) -> None:
    path, says = tmp_path / "version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23"
    assert devices.nvidia_driver(path) is None
    for text, version in ((says, "570.86.15"), ("NVRM version: unknown", None)):
        path.write_text(text)
        assert devices.nvidia_driver(path) == version


NO_CLOCKS = "no clocks, power limit or energy of the GPU ({})"
BLOCKING = "CUDA_LAUNCH_BLOCKING is set: the host waits for every kernel, and all times are longer"
OVERRIDE = "NVIDIA_TF32_OVERRIDE=1 overrides torch's settings of TF32 in NVIDIA's libraries"


@pytest.mark.parametrize(
    ("device", "variables", "works", "expected"),
    [
        ("cpu", {}, None, ()),
        ("cuda:1", {}, None, (NO_CLOCKS.format("nvidia-ml-py is not installed: pip install nvidia-ml-py"),)),
        ("cuda:1", {}, False, (NO_CLOCKS.format("NVML does not answer: NVMLError: "),)),
        ("cuda:1", {"CUDA_LAUNCH_BLOCKING": "0"}, True, ()),
        ("cuda:1", {"CUDA_LAUNCH_BLOCKING": "1"}, True, (BLOCKING,)),
        ("cpu", {"NVIDIA_TF32_OVERRIDE": "1"}, None, (OVERRIDE,)),
    ],
)
def test_what_a_reader_of_the_numbers_must_know(
    monkeypatch: Patch,
    nvml: Callable[..., None],
    device: str,
    variables: dict[str, str],
    works: bool | None,
    expected: tuple[str, ...],
) -> None:
    nvml(works if works is None else pynvml(works=works))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert remarks_on_process(torch.device(device)) == expected


def test_memory_is_limited_where_no_driver_maps_it(monkeypatch: Patch, tmp_path: Path) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(limits, "Path", lambda _: tmp_path / "oom_score_adj")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (-1, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: seen.append(limit[0]))
    for name in ("cuda:1", "cpu"):
        limits.limit_memory(make_job(device=name, protocol=Protocol(max_memory_bytes=1 << 30)))
        assert seen == ([1 << 30] if name == "cpu" else [])


def test_a_script_for_a_missing_device_says_so(fake: Fake, capsys: Capture) -> None:
    assert replay(to_json(make_job(device="cuda:5")), "eager", "") == NOT_RUN
    assert capsys.readouterr().err == "this machine cannot run it: torch finds 2 CUDA devices\n"


# -- clocks and throttling, read between the samples ----------------------------------------------


def test_a_driver_that_fails_costs_later_readings(monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(gpu_clock, "gpu_of", lambda _: Gpu(pynvml(readings=2), None))
    rounds = Rounds(Protocol(), CPU, lambda phase, variant: None)
    variants: dict[str, Variant] = {BASELINE: trial("mlp").variant(), "b": trial("mlp").variant()}
    with observing("rounds", CPU, between=rounds.between) as numbers:
        endless = rounds.endless(variants, 1, "measure")
        for _ in range(2):
            next(endless)
        endless.close()
    assert rounds.between == []
    assert (numbers["gpu_clock_min_mhz"], numbers["gpu_clock_max_mhz"]) == (1000, 1010)
    assert "rounds_wall_s" in numbers
    assert capsys.readouterr().out.count("no metric gpu_clock") == 1  # it is not asked again
