"""The flags that all studies have. Each setting of a study is a row of a table, as in the runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness import devices
from harness.settings import COUNT, Group, Kind, by_flag, choice, within
from runner.errors import UsageError

row = partial(by_flag, group=Group.SELECTION)
count = partial(row, kind=COUNT)
RATE = Kind(within(lambda rate: 0 < rate <= 1, "a learning rate; give a number between 0 and 1, as 1e-3"))


def several(default: Sequence[str], flag: str, noun: str, known: Sequence[str], when: str = "all") -> Any:
    """A setting: some of the ``known`` names. ``when``: which are meant if the flag is not given."""
    words = f"comma-separated, of {', '.join(known)} (default: {when})"
    return row(default, flag, listed=True, kind=choice(noun, known), help=words)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """The settings that all studies have. ``device``: "" for the GPU, or the CPU if there is none."""

    device: str = row(
        "",
        "--device=DEVICE",
        kind=choice("device", devices.TRIED),
        help=f"{' or '.join(devices.TRIED)} (default: the GPU if there is one)",
    )
    threads: int | None = count(None, "--threads=N", help="CPU threads (default: torch's choice)")
    output_dir: Path | None = by_flag(
        None,
        "--output-dir=DIR",
        group=Group.SELECTION,
        kind=Kind(Path),
        help="a new folder for the run (default: under logs/)",
    )
    quick: bool = row(False, "--quick", help="a trial of a few minutes; its numbers have no meaning")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextStudyOptions(StudyOptions):
    """The settings of studies that train on a text."""

    data_dir: Path | None = by_flag(
        None,
        "--data-dir=DIR",
        group=Group.SELECTION,
        kind=Kind(Path),
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
