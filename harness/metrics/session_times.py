"""Numbers that the session itself records: rounds of the warm-up, and phase times."""

from __future__ import annotations

from harness.declared import CANDIDATE, COMPILATION, Metric

WHEN = "session"


def _spent(phase: str, what: str) -> Metric:
    return Metric(f"spent_{phase}_s", "s", f"time of the worker: {what}")


METRICS = (
    Metric("warmup_rounds", "", "rounds before the timed rounds"),
    Metric("warmup_rounds_kept", "", "rounds of the warm-up that count as timed: 0 or 1"),
    Metric("warmup_settled", "", "whether times had settled when the warm-up ended"),
    Metric("iterations_per_sample", "", "steps of one sample"),
    Metric(
        "prepared_beside",
        "",
        "the most other jobs that were built and compiled at the same time (--prepare-ahead)",
    ),
    _spent("build", "building the model"),
    _spent("eager", "eager's first steps"),
    _spent("fp64", "the fp64 reference"),
    _spent("warm_up", "rounds of the warm-up"),
    _spent("measure", "timed rounds"),
    _spent("finish", "the drift check, and metrics of extra steps"),
    Metric(
        "spent_compile_s",
        "s",
        "time of the worker: compiling this candidate, first calls included",
        sides=(CANDIDATE,),
        group=COMPILATION,
    ),
    Metric(
        "spent_check_s", "s", "time of the worker: comparing this candidate's results", sides=(CANDIDATE,)
    ),
)
