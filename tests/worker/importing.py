"""``python -m tests.worker.importing SUITE``: imports what a host imports, and sees who asks for a device.

Every entry point that may start a driver is replaced by a function that notes its caller and raises. Prints
the callers as JSON: ``[["torch.cuda.is_available", "file:line in function"], ...]``. ``torch.xpu`` and
``torch.mps`` are not watched: a torch for CUDA is built without them.
"""

import json
import os
import sys
import traceback
from typing import Any

from harness.worker import host

NAMES = {
    "torch.cuda": (
        *("is_available", "device_count", "init", "_lazy_init", "current_device", "set_device"),
        *("get_device_name", "get_device_properties", "get_device_capability", "get_arch_list"),
        *("synchronize", "mem_get_info", "is_bf16_supported", "current_stream", "memory_allocated"),
    ),
    "torch.accelerator": ("is_available", "device_count", "current_accelerator", "current_device_index"),
    "torch._C": (
        *("_cuda_getDeviceCount", "_cuda_init"),
        *("_accelerator_getAccelerator", "_accelerator_hooks_device_count"),
    ),
    "torch": ("get_device_module",),
}


ANSWERED_BY_NVML = ("torch.cuda.is_available", "torch.cuda.device_count")
HARMLESS = ("torch.accelerator.current_accelerator", "torch._C._accelerator_getAccelerator")
"""Without arguments, they tell what torch was built for. torch's documents: this does not poison a fork."""


def forbid() -> list[tuple[str, str]]:
    """Replaces the entry points; the list that is returned fills with their callers."""
    import importlib

    asked: list[tuple[str, str]] = []
    cuda: Any = importlib.import_module("torch.cuda")
    cuda._device_count_nvml = lambda: 1  # as with a card

    def forbidden(module: Any, name: str) -> Any:
        real = getattr(module, name.rpartition(".")[2])

        def ask(*given: Any, **named: Any) -> Any:
            if name in HARMLESS and not (given or named):
                return real()
            if name in ANSWERED_BY_NVML and os.environ.get(host.ASK_NVML) == "1":
                return real()
            frames = [frame for frame in traceback.extract_stack()[:-1] if "importlib" not in frame.filename]
            caller = frames[-1]
            asked.append((name, f"{caller.filename}:{caller.lineno} in {caller.name}"))
            raise AssertionError(f"{name} was called while a library was imported")

        return ask

    for place, names in NAMES.items():
        module = importlib.import_module(place)
        for name in names:
            if hasattr(module, name):  # torch._C has CUDA's own where torch was built with it
                setattr(module, name, forbidden(module, f"{place}.{name}"))
    return asked


def main(suite: str, case: str) -> None:
    import torch  # noqa: F401 - before its entry points are replaced

    asked = forbid()
    with host._importing():
        host._import_torch()
        host._warm(suite, case)
    print(json.dumps(asked))


if __name__ == "__main__":
    main(*sys.argv[1:])
