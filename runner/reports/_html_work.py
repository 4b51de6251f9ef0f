"""What a panel draws of the work behind the times: the place on the roofline, the compilation's phases."""

from __future__ import annotations

from typing import Any

from runner.comparison import Comparison
from runner.digits import share_text

Number = float | None

# Each holds those after it, down to the last but two, which stand beside them.
PHASES = {
    "compilation_latency_s": "in all, with first calls",
    "compile_dynamo_s": "Dynamo and all below",
    "compile_aot_autograd_s": "AOTAutograd and below",
    "compile_inductor_s": "Inductor and below",
    "compile_inductor_code_generation_s": "code generation",
    "compile_kernel_compiler_s": "C++ or Triton compiler",
    "compile_backward_s": "of these, the backward",
    "compile_autotuning_s": "autotuning",
    "compile_cudagraph_capture_s": "CUDA graph capture",
}


def roofline(comparison: Comparison) -> dict[str, Any] | None:
    """FLOP/byte of the step, TFLOP/s of both sides, the device's two limits; None where one is not known."""
    work = comparison.work
    if work is None or work.roof_tflop_per_s is None or work.flop_per_byte is None:
        return None
    peak, bandwidth = work.measured_peak_tflop_per_s, work.measured_bandwidth_gb_per_s
    return {
        "flop_per_byte": _short(work.flop_per_byte),
        "eager": _short(work.baseline_tflop_per_s if work.baseline_share_of_roof is not None else None),
        "candidate": _short(work.candidate_tflop_per_s),
        "roof": _short(work.roof_tflop_per_s),
        "shares": [
            None if share is None else share_text(share)
            for share in (work.baseline_share_of_roof, work.candidate_share_of_roof)
        ],
        "peak_flop_per_s": _short(None if peak is None else peak * 1e12),
        "bandwidth_bytes_per_s": _short(None if bandwidth is None else bandwidth * 1e9),
    }


def phases(comparison: Comparison) -> list[tuple[str, float]] | None:
    """(phase, seconds) as far as torch reported them; None where there is one number at most."""
    metrics = comparison.record.metrics
    found = [
        (name, float(f"{seconds:.4g}"))
        for key, name in PHASES.items()
        if isinstance(seconds := metrics.get(key), (int, float)) and seconds > 0
    ]
    return found if len(found) > 1 else None


def _short(value: Number) -> Number:
    return None if value is None else float(f"{value:.5g}")
