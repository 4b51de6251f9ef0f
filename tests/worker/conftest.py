"""Settings for tests of what runs inside a worker, in this process."""

import gc
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from harness.loading.torchvision_ops import mend_torchvision
from harness.metrics import peak_rates
from harness.worker import session as sessions
from tests.accelerator import Accelerator, in_place_of_the_cpu
from tests.factories import Patch

mend_torchvision()  # as load_suite does: many tests import suites and model libraries themselves


@pytest.fixture(scope="session", autouse=True)
def _seeds_without_stacks() -> Iterator[None]:
    """``torch.manual_seed`` writes the caller's stack, deep here, for each kind of device not in use."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in (torch.cuda, torch.xpu, torch.mtia):
            patch.setattr(kind, "traceback", SimpleNamespace(format_stack=list))
        yield


@pytest.fixture(autouse=True)
def _short_collections(monkeypatch: Patch) -> Iterator[None]:
    """A session collects garbage many times, which takes some tenths of a second with torch imported.

    What is there before a test is frozen, so that collections visit only what the test has made.
    """
    gc.freeze()
    monkeypatch.setattr(gc, "unfreeze", lambda: None)  # a session's own: it would thaw torch as well
    yield
    gc.collect()


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Dynamo has compiled nothing, and the number of threads is as before afterwards."""
    torch._dynamo.reset()
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def machine(monkeypatch: Patch) -> Iterator[Accelerator]:
    """Small copies and products, no facts about packages, and no collections, which take most of the time."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
    monkeypatch.setattr(sessions, "describe", lambda device: {"device": str(device)})
    monkeypatch.setattr(sessions, "STREAM_S", 0.0)
    monkeypatch.setattr(peak_rates, "COPIED_BYTES_ACCELERATED", 1 << 10)
    monkeypatch.setattr(peak_rates, "SIZES_ACCELERATED", (8, 16))
    # an automatic collection comes at a place that depends on the tests before, and frees the fake's memory
    enable = gc.enable
    monkeypatch.setattr(gc, "enable", lambda: None)
    gc.disable()
    try:
        with in_place_of_the_cpu(Accelerator()) as accelerator:
            yield accelerator
    finally:
        enable()
