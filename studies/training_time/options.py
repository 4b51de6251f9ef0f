"""The settings of study A. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from harness import devices
from runner.errors import UsageError
from studies.options import RATE, TextStudyOptions, count, row, several, usable_device
from studies.training_time.published import MODES, PRECISIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTimeOptions(TextStudyOptions):
    """None in steps, batch, block, seeds or every: the default for the device."""

    precisions: tuple[str, ...] = several(
        (), "--precisions=NAME", "precision", PRECISIONS, "all that the device has"
    )
    modes: tuple[str, ...] = several(MODES, "--modes=NAME", "mode", MODES)
    steps: int | None = count(None, "--steps=N", help="training steps (default: 300 on a CPU, 5000 on a GPU)")
    batch: int | None = count(
        None, "--batch-size=N", help="windows in a step (default: 8 on a CPU, 64 on a GPU)"
    )
    block: int | None = count(None, "--block-size=N", help="characters in a window (default: 256)")
    seeds: int | None = count(None, "--seeds=N", help="training runs of each variant (default: 3)")
    chunk: int = count(20, "--chunk=N", help="steps of one variant before the next runs (default: 20)")
    every: int | None = count(
        None, "--evaluate-every=N", help="steps between evaluations (default: a tenth of --steps)"
    )
    learning_rate: float = row(
        1e-3, "--learning-rate=RATE", kind=RATE, help="learning rate of AdamW (default: 1e-3)"
    )
    records_only: bool = row(
        False,
        "--records-only",
        help="write no report, for an interpreter that has only torch; `studies report` writes it later",
    )

    def checked(self) -> TrainingTimeOptions:
        """With the defaults for the device. ``UsageError`` for settings that exclude each other."""
        device = usable_device(self.device)
        usable = tuple(name for name in PRECISIONS if devices.of(device).has_tf32 or "tf32" not in name)
        precisions = self.precisions or usable
        for name in precisions:
            if name not in usable:
                raise UsageError(f"--precisions: {name} exists on CUDA only; with --device=cpu leave it out")
        if "eager" not in self.modes:
            raise UsageError("--modes: eager is the baseline of the other modes; name it too")
        if "float32" not in precisions:
            raise UsageError("--precisions: all ratios are relative to float32; name it too")
        return replace(
            self,
            device=device,
            precisions=tuple(name for name in PRECISIONS if name in precisions),
            modes=tuple(name for name in MODES if name in self.modes),
        )
