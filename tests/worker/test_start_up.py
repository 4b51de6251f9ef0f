"""What a process of a start-up race loads and stores, with torch's own files."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.protocol import CACHES, LIBRARY
from harness.schema import Job, Mode, Protocol, Status
from harness.timing.start_up import LEAST_STEPS, STEPS, StartUp
from harness.worker.session import Session
from harness.workload import Workload
from tests.factories import make_job
from tests.worker.planted import failing, silent


def work(scale: float = 1.0) -> Workload:
    torch.manual_seed(0)
    last = torch.nn.Linear(8, 4)
    with torch.no_grad():
        last.weight.mul_(scale)
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), last)
    return Workload(module=module, args=(torch.randn(4, 8),))


def job(candidate: str, start: str, stored: Path, *, accuracy: bool = False) -> Job:
    protocol = Protocol(performance=False, accuracy=accuracy, start=start, stored=str(stored), threads=1)
    return make_job(mode=Mode.INFERENCE, candidates=(candidate,), protocol=protocol)


def session(asked: Job, scale: float = 1.0) -> Session:
    opened = Session(asked, silent, lambda _: work(scale))
    opened.open()
    return opened


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "caches"))
    torch._dynamo.reset()
    return tmp_path


def test_eager_is_raced_from_its_first_step(tmp_path: Path) -> None:
    raced = session(job("eager", "eager", tmp_path))
    status, parity, numbers, _ = raced.prepare("eager")
    assert (status, parity) == (Status.PASS_DUE_TO_SKIP, None)
    assert len(raced.first_calls_s["eager"]) == STEPS
    assert "compilation_latency_s" not in numbers
    assert list(tmp_path.iterdir()) == []


def test_a_slow_step_ends_the_race_early(tmp_path: Path) -> None:
    protocol = replace(job("eager", "eager", tmp_path).protocol, max_measure_s=0.0)
    assert len(StartUp(protocol).steps(lambda: None, lambda: None)) == LEAST_STEPS


@pytest.mark.slow
def test_a_cold_start_writes_torch_s_cache_file_and_another_torch_finds_nothing_in_it(
    caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other torch is a stand-in: only the part of the keys that names the build differs."""
    from torch._inductor import codecache

    stored = caches / "stored"
    stored.mkdir()
    first = session(job("inductor", "cold", stored)).prepare("inductor")[2]
    assert (stored / CACHES).stat().st_size > 1000
    assert first["compile_cache_misses"]
    for other, start in ((False, "own"), (True, "other")):
        torch._dynamo.reset()
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(caches / start))
        if other:
            monkeypatch.setattr(codecache, "torch_key", lambda: b"another torch")
        numbers = session(job("inductor", "cache file", stored)).prepare("inductor")[2]
        assert bool(numbers["compile_cache_hits"]) is not other
        assert bool(numbers["compile_cache_misses"]) is other


def test_a_file_that_torch_cannot_load_is_an_error(tmp_path: Path) -> None:
    (tmp_path / CACHES).write_bytes(b"no")
    start_up = StartUp(job("inductor", "cache file", tmp_path).protocol)
    with pytest.raises(Exception, match=r".+"):
        start_up.load()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_a_package_that_computes_something_else_fails_parity(caches: Path) -> None:
    opened = session(job("aot_inductor", "cold", caches), scale=1.02)
    opened.prepare("aot_inductor")
    assert (caches / LIBRARY).exists()
    loaded = session(job("aot_inductor", "package", caches, accuracy=True))
    assert failing(loaded.prepare("aot_inductor"))
