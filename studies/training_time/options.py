"""The settings of study A. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from harness import devices
from harness.settings import COUNT, choice, setting
from runner.errors import UsageError
from studies.options import DATA_DIR, RATE, StudyOptions, check_precisions, row, usable_device
from studies.training_time.published import MODES, PRECISIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTimeOptions(StudyOptions):
    """None in steps, batch, block, seeds or every: the default for the device."""

    precisions: tuple[str, ...] = row(
        (),
        "--precisions=NAME",
        listed=True,
        kind=choice("precision", PRECISIONS),
        help=f"comma-separated, of {', '.join(PRECISIONS)} (default: all that the device has)",
    )
    modes: tuple[str, ...] = row(
        MODES,
        "--modes=NAME",
        listed=True,
        kind=choice("mode", MODES),
        help=f"comma-separated, of {', '.join(MODES)} (default: all)",
    )
    steps: int | None = row(
        None, "--steps=N", kind=COUNT, help="training steps (default: 300 on a CPU, 5000 on a GPU)"
    )
    batch: int | None = row(
        None, "--batch-size=N", kind=COUNT, help="windows in a step (default: 8 on a CPU, 64 on a GPU)"
    )
    block: int | None = row(None, "--block-size=N", kind=COUNT, help="characters in a window (default: 256)")
    seeds: int | None = row(None, "--seeds=N", kind=COUNT, help="training runs of each variant (default: 3)")
    chunk: int = row(
        20,
        "--chunk=N",
        kind=COUNT,
        help="steps of one variant before the next variant runs (default: 20)",
    )
    every: int | None = row(
        None,
        "--evaluate-every=N",
        kind=COUNT,
        help="steps between evaluations (default: a tenth of --steps)",
    )
    learning_rate: float = row(
        1e-3, "--learning-rate=RATE", kind=RATE, help="learning rate of AdamW (default: 1e-3)"
    )
    data_dir: Path | None = setting(None, DATA_DIR)
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
        check_precisions("--precisions", precisions, device)
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
