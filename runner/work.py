"""FLOP/s, shares of the device's peak, items per second and energy of a record: see ``comparison.Work``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.schema import Record
from runner.comparison import Work
from runner.noise import number
from runner.statistics import PairedEstimate

GIGA, TERA = 1e9, 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The most that a device was seen to do. Each job measures it, and one that was disturbed falls short."""

    flop_per_s: float | None = None
    bytes_per_s: float | None = None


def best_peaks(records: Sequence[Record], devices: Sequence[str]) -> tuple[Peaks, ...]:
    """For each record the best of all records on its device, at its precision, with as many threads."""
    keys = [
        (device, record.job.dtype, record.job.protocol.threads)
        for record, device in zip(records, devices, strict=True)
    ]
    found: dict[tuple[str, str, int | None], Peaks] = {}
    for key, record in zip(keys, records, strict=True):
        best = found.get(key, Peaks())
        found[key] = Peaks(
            flop_per_s=_larger(best.flop_per_s, number(record, "measured_peak_flop_per_s")),
            bytes_per_s=_larger(best.bytes_per_s, number(record, "measured_bandwidth_bytes_per_s")),
        )
    return tuple(found[key] for key in keys)


def _larger(first: float | None, second: float | None) -> float | None:
    return max((value for value in (first, second) if value is not None), default=None)


def work_of(record: Record, estimate: PairedEstimate | None, peaks: Peaks) -> Work | None:
    """All of it from the record's metrics and the median step; None without such a step."""
    if estimate is None:
        return None
    baseline_s, candidate_s = estimate.baseline_median_s, estimate.candidate_median_s
    flops = number(record, "flops_per_step")
    items = number(record, "items_per_step")
    item = record.metrics.get("item")
    promised = number(record, "data_sheet_peak_flop_per_s")
    measured = peaks.flop_per_s
    baseline, candidate = _ratio(flops, baseline_s), _ratio(flops, candidate_s)
    moved = number(record, "bytes_per_step")
    baseline_moved, candidate_moved = _ratio(moved, baseline_s), _ratio(moved, candidate_s)
    intensity = _ratio(flops, moved)
    bandwidth = peaks.bytes_per_s
    roof = min(measured, bandwidth * intensity) if measured and bandwidth and intensity else None
    # the peaks are those of the candidates' precision
    alike = record.job.baseline_dtype in (None, record.job.dtype)
    comparable = baseline if alike else None
    return Work(
        flops_per_step=flops,
        baseline_tflop_per_s=_ratio(baseline, TERA),
        candidate_tflop_per_s=_ratio(candidate, TERA),
        baseline_share_of_data_sheet=_ratio(comparable, promised),
        candidate_share_of_data_sheet=_ratio(candidate, promised),
        baseline_share_of_measured=_ratio(comparable, measured),
        candidate_share_of_measured=_ratio(candidate, measured),
        item=item if isinstance(item, str) else None,
        baseline_items_per_s=_ratio(items, baseline_s),
        candidate_items_per_s=_ratio(items, candidate_s),
        energy_ratio=_ratio(
            number(record, "baseline_energy_per_step_j"), number(record, "candidate_energy_per_step_j")
        ),
        flop_per_byte=intensity,
        roof_tflop_per_s=_ratio(roof, TERA),
        baseline_share_of_roof=_ratio(comparable, roof),
        candidate_share_of_roof=_ratio(candidate, roof),
        bytes_per_step=moved,
        baseline_gb_per_s=_ratio(baseline_moved, GIGA),
        candidate_gb_per_s=_ratio(candidate_moved, GIGA),
        baseline_share_of_bandwidth=_ratio(baseline_moved, bandwidth),
        candidate_share_of_bandwidth=_ratio(candidate_moved, bandwidth),
        measured_peak_tflop_per_s=_ratio(measured, TERA),
        measured_bandwidth_gb_per_s=_ratio(bandwidth, GIGA),
    )


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
