"""A matrix product in float32 and in bfloat16 on this processor, one thread: ms, the median of 20."""

import statistics
import time

import torch


def milliseconds(dtype: torch.dtype) -> float:
    a, b = (torch.randn(512, 512, dtype=dtype) for _ in range(2))
    samples = []
    for _ in range(25):
        begin = time.perf_counter()
        a @ b
        samples.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(samples[5:])


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    for dtype in (torch.float32, torch.bfloat16):
        print(f"{dtype}: {milliseconds(dtype):.3g} ms")
