"""Whether two processes run the same code: inductor with empty caches and other hash seeds, several times.

    python results/verdicts-cpu/code.py lcnet_050 inference    # four processes; models of timm

Prints for each process the digest of the Python module that inductor generated, that of the machine code of all its
kernels (the section .text), and the memory in huge pages. Kept beside its results. No check covers it.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PROCESSES = 4


def main(model: str, mode: str) -> None:
    for number in range(PROCESSES):
        with tempfile.TemporaryDirectory() as caches:
            variables = {"PYTHONHASHSEED": str(number), "TORCHINDUCTOR_CACHE_DIR": caches}
            command = [sys.executable, __file__, model, mode, caches]
            subprocess.run(command, env={**os.environ, **variables}, check=True)


def compiled(model: str, mode: str, caches: str) -> None:
    import torch

    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from harness.loading.torchvision_ops import mend_torchvision

    mend_torchvision()
    import timm
    from torch._inductor.codecache import PyCodeCache

    torch.set_num_threads(1)
    torch.manual_seed(0)
    step = torch.compile(timm.create_model(model).train(mode == "training"))
    inputs = torch.randn(2, 3, 224, 224)
    for _ in range(2):
        with torch.set_grad_enabled(mode == "training"):
            loss = step(inputs).sum()
        if mode == "training":
            loss.backward()
    huge = re.search(r"AnonHugePages:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text())
    modules = digest(sorted(module.key for module in PyCodeCache.modules))
    kernels = [digest([text(file)]) for file in Path(caches).rglob("*.so") if "wrapper" not in file.name]
    print(
        model,
        mode,
        f"module {modules}, {len(kernels)} kernels {digest(sorted(kernels))}, huge {huge and huge[1]} kB",
        flush=True,
    )


def text(library: Path) -> str:
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run(["objcopy", "-O", "binary", "-j", ".text", library, file.name], check=True)
        return Path(file.name).read_bytes().hex()


def digest(parts: list[str]) -> str:
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:10]


if __name__ == "__main__":
    compiled(*sys.argv[1:]) if len(sys.argv) > 3 else main(*sys.argv[1:])
