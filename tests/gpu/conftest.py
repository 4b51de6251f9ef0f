"""The device of these tests. ``GPU_TESTS_ON=cpu`` has the CPU stand in: each line has run somewhere."""

import os
from pathlib import Path

import pytest
import torch

from harness import devices

HERE = Path(__file__).parent
CHOICE = "GPU_TESTS_ON"


def chosen() -> devices.Device:
    return devices.named(os.environ.get(CHOICE, "cuda"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    why = chosen().why_missing() if ours else None
    for item in ours:
        item.add_marker(pytest.mark.gpu)
        item.add_marker(pytest.mark.filterwarnings("default"))  # torch warns of what a card could do
        if why is not None:
            item.add_marker(pytest.mark.skip(reason=f"{why}; {CHOICE}=cpu has the CPU stand in"))


@pytest.fixture(scope="session")
def device() -> devices.Device:
    return chosen()


@pytest.fixture(scope="session")
def place(device: devices.Device) -> torch.device:
    return device.torch_device()


@pytest.fixture
def _real_gpu(device: devices.Device) -> None:
    if not device.accelerated:
        pytest.skip("needs a real GPU: nothing stands in for this")
