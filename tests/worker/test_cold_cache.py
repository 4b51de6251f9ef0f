"""``--cold-cache``: a write over the last cache before every sample, and one step a sample."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from harness import devices
from harness.timing import rounds
from tests.worker.planted import CPU
from tests.worker.test_session import job, opened


def test_every_sample_follows_a_flush_and_is_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr("harness.timing.rounds.flusher", lambda device: lambda: flushed.append(str(device)))
    ready = opened(job(accuracy=False, min_sample_s=0.01, cold_cache=True))
    ready.prepare("eager")
    assert ready.warm_up()["iterations_per_sample"] == 1
    flushed.clear()
    rounds, _ = ready.measure(200)
    samples = sum(len(one.seconds) for one in rounds if one.seconds)
    assert samples == 400  # eager and its copy
    assert len(flushed) >= samples - 2 * 100  # rounds that the warm-up kept were flushed there
    assert set(flushed) == {"cpu"}


def test_the_buffer_is_twice_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(cache_bytes=lambda: 1 << 20)
    made: list[torch.Tensor] = []
    real = torch.empty

    def empty(*words: object, **more: object) -> torch.Tensor:
        made.append(real(*words, **more).fill_(7))  # type: ignore[call-overload]
        return made[-1]

    monkeypatch.setattr(rounds, "of", lambda _: fake)
    monkeypatch.setattr(torch, "empty", empty)
    flush = rounds.flusher(CPU)
    (buffer,) = made
    assert buffer.numel() * buffer.element_size() == 2 << 20
    flush()
    assert not buffer.any()


def test_the_size_of_a_cpu_s_last_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for index, text in enumerate(("32K\n", "2048K\n", "36M\n", "odd\n")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(text)
    monkeypatch.setattr(devices, "CPU_CACHES", tmp_path)
    assert devices.CPU.cache_bytes() == 36 << 20
    monkeypatch.setattr(devices, "CPU_CACHES", tmp_path / "none")
    assert devices.CPU.cache_bytes() is None
