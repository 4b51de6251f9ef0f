"""The flags that all studies have. Each setting of a study is a row of a table, as in the runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness import devices
from harness.settings import COUNT, Group, Kind, by_flag, choice, flag, setting, within
from runner.errors import UsageError

row = partial(by_flag, group=Group.SELECTION)
one_flag = partial(flag, group=Group.SELECTION)
FOLDER = Kind(Path)
RATE = Kind(within(lambda rate: 0 < rate <= 1, "a learning rate; give a number between 0 and 1, as 1e-3"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """The settings that all studies have. ``device``: "" for the GPU, or the CPU if there is none."""

    device: str = row(
        "",
        "--device=DEVICE",
        kind=choice("device", devices.TRIED),
        help=f"{' or '.join(devices.TRIED)} (default: the GPU if there is one)",
    )
    threads: int | None = row(None, "--threads=N", kind=COUNT, help="CPU threads (default: torch's choice)")
    output_dir: Path | None = setting(
        None,
        one_flag("--output-dir=DIR", kind=FOLDER, help="a new folder for the run (default: under logs/)"),
    )
    quick: bool = row(False, "--quick", help="a trial of a few minutes; its numbers have no meaning")


DATA_DIR = one_flag(
    "--data-dir=DIR",
    kind=FOLDER,
    help="folder with tinyshakespeare.txt (default: the cache folder, else a download)",
)


def usable_device(given: str) -> str:
    """The requested device, or the best device of this machine. ``UsageError`` if torch cannot use it."""
    if not given:
        return devices.best()
    device = devices.of(given)
    if not device.count():
        raise UsageError(f"--device: torch can use no {device.label} device here; use --device={devices.CPU}")
    return given


def check_precisions(flag: str, names: Sequence[str], device: str) -> None:
    """``UsageError`` for a precision that the device does not have."""
    for name in names:
        if "tf32" in name and not devices.of(device).has_tf32:
            raise UsageError(f"{flag}: {name} exists on CUDA only; with --device=cpu leave it out")
