"""How much memory a worker and all that it started hold on the host."""

from __future__ import annotations


def resident_bytes(pid: int) -> int:
    """Bytes resident in the process and its descendants; pages that they share count once for each."""
    import psutil  # only where something is measured: --help works without

    total = 0
    try:
        worker = psutil.Process(pid)
        processes = [worker, *worker.children(recursive=True)]
    except psutil.Error:
        return 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue  # ended meanwhile
    return total


def bytes_text(count: float) -> str:
    """``1.5 GB``"""
    return f"{count / 1e9:.3g} GB"
