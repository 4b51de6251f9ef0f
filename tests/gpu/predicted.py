"""What a step should be bound by on an H200, from fake tensors. ``results/gpu-predicted`` has table and rule.

    python -m tests.gpu.predicted               # writes predicted.csv: the first jobs of a card, forty models
    python -m tests.gpu.predicted MLP_addition  # prints the rows of these models

Nothing is computed: a step of eager runs at full scale and published batch, with shapes alone.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F  # noqa: N812 - as torch names it
from torch.utils._python_dispatch import TorchDispatchMode

from harness.hardware.peaks import data_sheet_peak
from harness.loading.suite_files import load_suite
from harness.metrics.flops import flop_counter
from harness.metrics.traffic import traffic_counter
from harness.precision import precision
from harness.schema import Case, Mode, Setting
from harness.tensors import named_tensors
from harness.workload import Workload
from tests.factories import known
from tests.gpu.items import items
from tests.worker.fake_device import faked, moved

RESULTS = Path(__file__).parents[2] / "results"
CARD = "NVIDIA H200"
BYTES_PER_S, LAUNCH_S = 4.3e12, 5e-6  # a copy's, reading and writing; of one operation, by the host
SIZES_GB = (24, 40, 80, 141)
USABLE = 0.95  # of the size
CONTEXT_GB, COMPILERS = 1.0, 2  # of CUDA itself; beside eager, by default
Row = dict[str, Any]
NO_BFLOAT16 = ("GoogleFnet",)  # whose transforms have no such kernels


def predicted(case: Case, dtype: str) -> Row:
    """The row of one case; with ``why`` alone if fake tensors cannot run it."""
    row: Row = {"model": case.name, "suite": case.suite, "mode": case.mode.value, "dtype": dtype}
    row["batch"] = case.batch_size
    peak = known(data_sheet_peak(CARD))
    rate = known(peak.flop_per_s("bfloat16" if "bfloat16" in dtype else dtype))
    work = load_suite(case.suite).build(case)
    with faked():
        try:
            return row | _bounds(_counted(work, case.mode, dtype, rate))
        except Exception as error:
            return row | {"why": f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"}


class Device(TorchDispatchMode):  # type: ignore[no-untyped-call] # of torch
    """The seconds of each operation on the card, of its products or its traffic, whichever takes longer.

    Inside the two counters, whose sums it reads before and after an operation.
    """

    def __init__(self, flops: Any, traffic: Any, rate: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._flops, self._traffic, self._rate = flops, traffic, rate
        self.seconds = {"compute": 0.0, "bandwidth": 0.0}

    def _until_now(self) -> tuple[float, float]:
        return self._flops.get_total_flops() / self._rate, self._traffic.bytes / BYTES_PER_S

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self._until_now()
        result = func(*args, **(kwargs or {}))
        compute, bandwidth = (now - then for now, then in zip(self._until_now(), before, strict=True))
        self.seconds["compute" if compute > bandwidth else "bandwidth"] += max(compute, bandwidth)
        return result


def _counted(work: Workload, mode: Mode, dtype: str, rate: float) -> Row:
    """Launches, FLOPs, bytes and memory of one step. Tensors are fake, and on the CPU by name."""
    kind = precision(dtype, "cpu")
    work = moved(work, mode, "cpu", kind.cast)
    weights = _bytes((*work.module.parameters(), *work.module.buffers()))
    given = _bytes(t for _, t in named_tensors((work.args, dict(work.kwargs), work.target), "given"))
    traffic, flops, saved = traffic_counter(), flop_counter(), list[torch.Tensor]()
    device = Device(flops, traffic, rate)

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    keep = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with keep, flops, traffic, device:
        _step(work, mode, dtype)
    training = mode is Mode.TRAINING
    kept = {key: size for key, size in _bytes(saved).items() if key not in weights | given}
    return {
        "launches": traffic.operations,
        "tflop": flops.get_total_flops() / 1e12,
        "gb": traffic.bytes / 1e9,
        "launch_ms": traffic.operations * LAUNCH_S * 1e3,
        **{f"{name}_ms": seconds * 1e3 for name, seconds in device.seconds.items()},
        "products_ms": flops.get_total_flops() / rate * 1e3,
        "state_gb": sum(weights.values()) / 1e9 * (2 if training else 1),
        "saved_gb": sum(kept.values()) / 1e9 if training else 0.0,
    }


def _step(work: Workload, mode: Mode, dtype: str) -> None:
    attention, place = F.scaled_dot_product_attention, "torch.nn.functional.scaled_dot_product_attention"

    def fused(*args: Any, **kwargs: Any) -> torch.Tensor:  # a CPU, unlike a card, has no dropout in it
        return attention(*args, **(kwargs | {"dropout_p": 0.0}))

    context = precision(dtype, "cpu").context("cpu")
    with torch.set_grad_enabled(mode is Mode.TRAINING), context, mock.patch(place, fused):
        if work.drive is not None:
            work.drive(work.module, work.module, work.args, lambda: None, None)
            return
        output = work.module(*work.args, **work.kwargs)
        loss = work.loss(output, work.target) if work.loss is not None and mode is Mode.TRAINING else None
    if loss is not None:
        loss.backward()  # type: ignore[no-untyped-call]


def _bytes(tensors: Any) -> dict[int, int]:
    dense = [tensor.untyped_storage() for tensor in tensors if tensor.layout is torch.strided]
    return {storage._cdata: storage.nbytes() for storage in dense}


def _bounds(counted: Row) -> Row:
    """What a step is bound by, what products leave of its time at most, and the smallest card for the job."""
    launch, compute, bandwidth = (counted[f"{name}_ms"] for name in ("launch", "compute", "bandwidth"))
    device = compute + bandwidth
    larger = "compute" if compute > bandwidth else "bandwidth"
    needs = counted["state_gb"] * (1 + COMPILERS) + counted["saved_gb"] + CONTEXT_GB
    numbers = {
        **counted,
        "mfu_at_most": counted["products_ms"] / max(launch, device),
        "graphs_at_most": max(launch, device) / device,
        "job_gb": needs,
        "fits_gb": next((size for size in SIZES_GB if needs <= USABLE * size), "none"),
    }
    short = {name: f"{n:.3g}" if isinstance(n, float) else n for name, n in numbers.items()}
    return {**short, "bound": "launch" if launch > device else larger}


COLUMNS = (
    *("model", "suite", "mode", "dtype", "batch", "bound", "mfu_at_most", "graphs_at_most", "launches"),
    *("tflop", "gb", "launch_ms", "compute_ms", "bandwidth_ms", "products_ms", "state_gb", "saved_gb"),
    *("job_gb", "fits_gb", "why"),
)


def planned() -> Iterator[tuple[Case, str]]:
    """Cases and precisions: the jobs of the card, then the forty models in training and inference."""
    jobs = [job for item in items("cuda") for job in item.jobs if job.protocol.processes == 1]
    yield from ((job.case, job.dtype) for job in jobs)
    done = {(job.case.mode, job.dtype, job.case.name) for job in jobs}
    names = [line.split(",")[0] for line in (RESULTS / "headline-whole-cpu/models.csv").read_text().split()]
    for mode, suite in product((Mode.TRAINING, Mode.INFERENCE), ("tiny_gpt", "huggingface", "timm_models")):
        for case in load_suite(suite).cases(Setting(mode=mode, device_type="cuda", scale="full")):
            dtype = "tf32" if case.name in NO_BFLOAT16 else "bfloat16"
            if case.name in names and (mode, dtype, case.name) not in done:
                yield case, dtype


def main(names: Sequence[str]) -> None:
    rows = (predicted(*job) for job in planned() if not names or job[0].name in names)
    if names:
        print(*rows, sep="\n")
        return
    with (RESULTS / "gpu-predicted/predicted.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
