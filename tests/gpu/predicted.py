"""What a step should be bound by on an H200, from fake tensors. ``results/gpu-predicted`` has table and rule.

    python -m tests.gpu.predicted         # writes predicted.csv: the forty whole models, and ITEMS
    python -m tests.gpu.predicted training bfloat16 tiny_gpt MLP_addition NanoGPT_addition  # prints these

Nothing is computed: a step of eager runs at full scale and published batch, with shapes alone.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
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
from harness.schema import Mode, Setting
from harness.tensors import named_tensors
from harness.workload import Workload
from tests.worker.fake_device import faked, moved

RESULTS = Path(__file__).parents[2] / "results"
CARD = "NVIDIA H200"
BYTES_PER_S, LAUNCH_S = 4.3e12, 5e-6  # a copy's, reading and writing; of one operation, by the host
SIZES_GB = (24, 40, 80, 141)
USABLE = 0.95  # of the size
CONTEXT_GB, COMPILERS = 1.0, 2  # of CUDA itself; beside eager, by default
Row = dict[str, Any]
ITEMS = (
    *(("training", dtype, "tiny_gpt", "GPT_150k") for dtype in ("amp_bfloat16", "float32", "tf32")),
    ("training", "bfloat16", "tiny_gpt", "GPT2_124M"),
    ("training", "amp_bfloat16", "huggingface", "BertForMaskedLM"),
    ("training", "amp_bfloat16", "timm_models", "resnet50"),
    ("training", "bfloat16", "tiny_gpt", "NanoGPT_addition"),
    ("inference", "bfloat16", "timm_models", "vit_base_patch16_224"),
    ("generate", "bfloat16", "huggingface", "Llama_3_2_1B"),
    *(("inference", dtype, "ops", "matmul_published") for dtype in ("bfloat16", "float32")),
)
"""Mode, precision, suite and model of the jobs that a card measures first."""
LENGTHS: Row = {"prompt_tokens": 128, "new_tokens": 64}
BATCHES = {"resnet50": 64}  # of an item, where it is not the published one
NO_BFLOAT16 = ("GoogleFnet",)  # whose transforms have no such kernels


def predicted(mode: str, dtype: str, suite: str, name: str) -> Row:
    """The row of one model; with ``why`` alone if fake tensors cannot run it."""
    setting = Setting(mode=Mode(mode), device_type="cuda", scale="full")
    (case,) = (case for case in load_suite(suite).cases(setting) if case.name == name)
    case = replace(case, batch_size=BATCHES.get(name, case.batch_size))
    case = replace(case, **(LENGTHS if case.mode is Mode.GENERATE else {}))
    row: Row = {"model": name, "suite": suite, "mode": mode, "dtype": dtype, "batch": case.batch_size}
    peak = data_sheet_peak(CARD)
    assert peak is not None
    rate = peak.flop_per_s("bfloat16" if "bfloat16" in dtype else dtype)
    assert rate is not None
    work = load_suite(suite).build(case)
    with faked():
        try:
            return row | _bounds(_counted(work, case.mode, dtype, rate))
        except Exception as error:
            return row | {"why": f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"}


class Device(TorchDispatchMode):  # type: ignore[no-untyped-call] # of torch
    """The seconds of each operation on the card: of its products or its traffic, whichever takes longer.

    Inside the two counters, whose sums it reads before and after an operation.
    """

    def __init__(self, flops: Any, traffic: Any, rate: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._flops, self._traffic, self._rate = flops, traffic, rate
        self.seconds = {"compute": 0.0, "bandwidth": 0.0}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        flops, moved_bytes = self._flops.get_total_flops(), self._traffic.bytes
        result = func(*args, **(kwargs or {}))
        compute = (self._flops.get_total_flops() - flops) / self._rate
        bandwidth = (self._traffic.bytes - moved_bytes) / BYTES_PER_S
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

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), flops, traffic, device:
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


def planned() -> Iterator[tuple[str, str, str, str]]:
    """The jobs of the card, then the forty models in training and inference."""
    yield from ITEMS
    names = [line.split(",")[0] for line in (RESULTS / "headline-whole-cpu/models.csv").read_text().split()]
    for mode in ("training", "inference"):
        for suite in ("tiny_gpt", "huggingface", "timm_models"):
            cases = load_suite(suite).cases(Setting(mode=Mode(mode), device_type="cuda", scale="full"))
            for name in (case.name for case in cases if case.name in names):
                job = (mode, "tf32" if name in NO_BFLOAT16 else "bfloat16", suite, name)
                if job not in ITEMS:
                    yield job


def main(words: Sequence[str]) -> None:
    if words:
        mode, dtype, suite, *names = words
        for name in names:
            print(predicted(mode, dtype, suite, name))
        return
    with (RESULTS / "gpu-predicted/predicted.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()
        for job in planned():
            table.writerow(predicted(*job))
            file.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
