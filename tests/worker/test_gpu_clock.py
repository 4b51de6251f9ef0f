"""Clocks and throttling by a fake NVML, read between the samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.hardware.nvml import Gpu
from harness.metrics import by_variant, gpu_clock, observing
from harness.schema import BASELINE, Protocol
from harness.timing.rounds import Rounds
from harness.timing.step import Variant
from tests.worker.planted import CPU, trial


class Nvml:
    """``pynvml``; ``newer``: whether it has the newer call."""

    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        pass

    def __init__(self, *, newer: bool, works: bool = True) -> None:
        self.clocks = iter(range(1000, 9000, 10))
        self.reasons, self.works = 0x004, works
        if newer:
            self.nvmlDeviceGetCurrentClocksEventReasons = self._newer

    def nvmlDeviceGetClockInfo(self, handle: object, kind: int) -> int:  # noqa: N802 - NVML's name
        return next(self.clocks)

    def _newer(self, handle: object) -> int:
        if not self.works:
            raise self.NVMLError
        return self.reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object) -> int:  # noqa: N802
        return 0x020 if self.works else self._newer(handle)


@pytest.mark.parametrize(
    ("nvml", "reasons"),
    [(Nvml(newer=True), ("power cap",)), (Nvml(newer=False), ("software temperature limit",))],
)
def test_reasons_come_from_the_call_that_there_is(nvml: Nvml, reasons: tuple[str, ...]) -> None:
    assert Gpu(nvml, None).throttle_reasons() == reasons


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[Nvml], dict[str, Any]]:
    """The numbers of two rounds of two variants."""

    def of(nvml: Nvml) -> dict[str, Any]:
        monkeypatch.setattr(gpu_clock, "gpu_of", lambda _: Gpu(nvml, None))
        rounds = Rounds(Protocol(), CPU, lambda phase, variant: None)
        variants: dict[str, Variant] = {BASELINE: trial("mlp").variant(), "b": trial("mlp").variant()}
        with observing("rounds", CPU, between=rounds.between) as numbers:
            endless = rounds.endless(variants, 1, "measure")
            for _ in range(2):
                next(endless)
            endless.close()
        assert rounds.between == []
        return numbers

    return of


def test_the_clock_is_read_after_each_sample_alone(read: Callable[[Nvml], dict[str, Any]]) -> None:
    """Of an idle device, before the first sample, it would be too low."""
    numbers = read(Nvml(newer=True))
    # two samples in each of two rounds
    assert (numbers["gpu_clock_min_mhz"], numbers["gpu_clock_max_mhz"]) == (1000, 1030)
    assert (numbers["gpu_throttle_reasons"], numbers["gpu_capped_share"]) == ("power cap", 1.0)
    of_variants = by_variant(numbers)
    means = [float(of_variants[name]["gpu_clock_mhz"] or 0) for name in (BASELINE, "b")]
    assert sum(means) == 2030
    assert "gpu_clock_mhz" not in of_variants[""]


def test_a_driver_that_fails_costs_its_later_readings_alone(
    read: Callable[[Nvml], dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    nvml = Nvml(newer=True)
    nvml.clocks = iter((1000, 1010))
    numbers = read(nvml)
    assert (numbers["gpu_clock_min_mhz"], numbers["gpu_clock_max_mhz"]) == (1000, 1010)
    assert "rounds_wall_s" in numbers
    assert capsys.readouterr().out.count("no metric gpu_clock") == 1  # it is not asked again
