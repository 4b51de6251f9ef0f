"""``--tune``: the settings that matter on a device, each as a candidate; the best with parity is kept."""

from __future__ import annotations

from collections.abc import Sequence

from harness.schema import Job, Mode
from runner.runs.why.explain import Attempt, Proposal

OF_CPU = (
    *("layout_optimization=False", "force_layout_optimization=True", "fallback_random=True"),
    *("decompose.threshold_backward=False", "epilogue_fusion=False", "cpp.simdlen=256", "cpp_wrapper=True"),
    *("pattern_matcher=False", "max_autotune=True"),
)
OF_CUDA = (
    *("mode=reduce-overhead", "mode=max-autotune-no-cudagraphs", "coordinate_descent_tuning=True"),
    *("layout_optimization=False", "fallback_random=True", "epilogue_fusion=False", "pattern_matcher=False"),
)
TRAINING_ONLY = ("decompose.threshold_backward=False", "fallback_random=True")


def tuning(job: Job) -> tuple[Proposal, ...]:
    """The settings for this job, as one proposal: no cause is claimed."""
    training = job.case.mode is Mode.TRAINING
    settings = OF_CPU if job.device == "cpu" else OF_CUDA
    chosen = [one for one in settings if training or one not in TRAINING_ONLY]
    chosen += ["functorch.activation_memory_budget=0.5"] if training else ["freezing=True"]
    return (Proposal(cause="a setting", sentence="", evidence="--tune", settings=tuple(chosen)),)


def winner(attempts: Sequence[Attempt]) -> Attempt | None:
    """The fastest setting that helps; None: the plain candidate stays."""
    helping = [one for one in attempts if one.helps]
    return max(helping, key=lambda one: one.comparison.speedup or 0.0, default=None)
