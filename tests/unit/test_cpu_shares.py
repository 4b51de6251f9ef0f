"""The CPUs of lanes that run side by side."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.worker.limits import CPUS
from runner.engine.executors.local import cpu_shares

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
    found = cpu_shares(devices, cpus, threads)
    assert found == expected
    used = [cpu for share in found.values() for cpu in share]
    assert len(used) == len(set(used))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_a_worker_uses_the_cpus_that_it_is_given() -> None:
    (first, *_) = sorted(os.sched_getaffinity(0))
    program = (
        "import json, os; from harness.worker.limits import use_cpus; use_cpus()\n"
        "print(json.dumps(sorted(os.sched_getaffinity(0))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, CPUS: str(first)},
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert json.loads(done.stdout) == [first]
