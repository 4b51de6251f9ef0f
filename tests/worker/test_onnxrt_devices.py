"""ONNX Runtime is told the device, with a module in its place: its build for CUDA does not load here."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from harness import devices
from harness.backends import onnxrt


class Session:
    def __init__(self, path: str, options: object, providers: list[Any]) -> None:
        self.providers = providers

    def get_providers(self) -> list[str]:
        return [self.providers[0][0], "CPUExecutionProvider"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cpu", ("CPUExecutionProvider", {})),
        ("cuda", ("CUDAExecutionProvider", {"device_id": "0"})),
        ("cuda:1", ("CUDAExecutionProvider", {"device_id": "1"})),
    ],
)
def test_the_session_is_on_the_device_of_that_number(
    monkeypatch: pytest.MonkeyPatch, name: str, expected: tuple[str, dict[str, str]]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=Session))
    device = devices.named(name)
    found = onnxrt._session("model.onnx", None, onnxrt.PROVIDERS[device.type], device)
    assert found.providers == [expected]


def test_a_session_that_fell_back_to_the_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fallen(Session):
        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=Fallen))
    with pytest.raises(RuntimeError, match="could not use its CUDAExecutionProvider"):
        onnxrt._session("model.onnx", None, "CUDAExecutionProvider", devices.named("cuda"))
