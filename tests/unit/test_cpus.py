"""The CPUs of lanes that run side by side."""

import json
import os
import platform
import sys
from pathlib import Path

import pytest

from harness.hardware.cpus import cpu_model
from harness.hardware.peaks import processor_peak
from harness.worker.limits import CPUS
from runner.engine.executors.local import cpu_shares
from tests.command_line import ran

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("devices", "cpus", "threads", "expected"),
    [
        (["cuda:0"], range(8), 1, {}),
        (["cuda:0", "cuda:1"], range(8), 1, {"cuda:0": (0, 1, 2, 3), "cuda:1": (4, 5, 6, 7)}),
        (["cuda:0", "cuda:1"], [1, 3, 5], 1, {"cuda:0": (1,), "cuda:1": (3,)}),
        (["cuda:0", "cuda:1"], range(8), 5, {}),  # a worker has more threads than its share has CPUs
        (["cuda:0", "cuda:1", "cuda:2"], range(2), 1, {}),
        (["cuda:0", "cuda:1"], (), 1, {}),
    ],
)
def test_lanes_share_no_cpu(
    devices: list[str], cpus: list[int], threads: int, expected: dict[str, tuple[int, ...]]
) -> None:
    assert cpu_shares(devices, cpus, threads, Path("/nowhere")) == expected


@pytest.fixture
def sockets(tmp_path: Path) -> Path:
    """Two sockets of four cores with two threads each, numbered as Linux does; card 0 is on the second."""
    for cpu in range(16):
        place = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(f"{cpu % 8},{cpu % 8 + 8}\n")
    for card, near in (("0000:17:00.0", "4-7,12-15"), ("0000:65:00.0", "0-3,8-11")):
        (tmp_path / "proc/driver/nvidia/gpus" / card).mkdir(parents=True)
        place = tmp_path / "sys/bus/pci/devices" / card
        place.mkdir(parents=True)
        (place / "local_cpulist").write_text(f"{near}\n")
    return tmp_path


@pytest.mark.parametrize("hidden", [False, True])
def test_lanes_share_no_core_and_are_next_to_their_cards(
    sockets: Path, monkeypatch: pytest.MonkeyPatch, *, hidden: bool
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")  # cuda:0 is another card then
    first, second = (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)
    shares = cpu_shares(["cuda:0", "cuda:1"], range(16), 8, sockets)
    assert shares == dict(
        zip(("cuda:0", "cuda:1"), (first, second) if hidden else (second, first), strict=True)
    )
    assert cpu_shares(["cuda:0", "cuda:1"], range(16), 9, sockets) == {}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_a_worker_uses_the_cpus_that_it_is_given() -> None:
    (first, *_) = sorted(os.sched_getaffinity(0))
    program = (
        "import json, os; from harness.worker.limits import use_cpus; use_cpus()\n"
        "print(json.dumps(sorted(os.sched_getaffinity(0))))"
    )
    done = ran(sys.executable, "-c", program, env={**os.environ, CPUS: str(first)}, cwd=ROOT)
    assert json.loads(done.stdout) == [first]


# -- the name of the processor -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("flags", "name"),
    [
        *(("fpu sse2 avx2", "AMD EPYC (AVX2)"), ("fpu avx2 avx512f", "AMD EPYC (AVX-512)")),
        ("fpu avx2 avx512f avx512_bf16", "AMD EPYC (AVX-512 with bfloat16)"),
        *(("avx2 avx512f avx512_bf16 amx_bf16", "AMD EPYC (AMX)"), ("fpu sse2", "AMD EPYC")),
    ],
)
def test_a_processor_is_named_with_its_widest_vectors(tmp_path: Path, flags: str, name: str) -> None:
    (tmp_path / "proc").mkdir()
    cpu = f"processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: {flags}\n\n"
    (tmp_path / "proc" / "cpuinfo").write_text(cpu + cpu.replace(": 0", ": 1"))
    assert cpu_model(tmp_path) == name


def test_without_its_name_the_platform_answers(tmp_path: Path) -> None:
    assert cpu_model(tmp_path) == (platform.processor() or platform.machine())


@pytest.mark.parametrize(
    ("flags", "threads", "largest", "tflop_per_s"),
    [
        ("fma avx2", 1, "", 0.064),  # 2 GHz x 2 units x 8 x 2
        ("fma avx2", 1, "3500000\n", 0.112),
        ("avx2 avx512f amx_bf16", 1, "", 0.128),
        ("avx2", 1 << 20, "", 0.064 * len(os.sched_getaffinity(0))),  # as many as there are cores
        ("avx", 1, "", None),
    ],
)
def test_the_promised_peak_of_a_processor(
    tmp_path: Path, flags: str, threads: int, largest: str, tflop_per_s: float | None
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(
        f"model name: A\nflags: {flags}\ncpu MHz: 2000.0\n\nmodel name: B\n"
    )
    place = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq"
    place.mkdir(parents=True)
    if largest:
        (place / "cpuinfo_max_freq").write_text(largest)
    peak = processor_peak(threads, tmp_path)
    assert (None if peak is None else peak.float32) == pytest.approx(tflop_per_s)
    if peak is not None:
        assert peak.flop_per_s("bfloat16") is None
        assert f"{'3.50' if largest else '2.00'} GHz" in peak.source


def test_a_processor_without_a_clock_promises_nothing(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("flags: avx2\n")
    assert processor_peak(1, tmp_path) is None
