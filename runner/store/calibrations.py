"""What ``--calibrate`` measured on this machine, in the user's configuration folder."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.codec import from_json, to_json
from harness.schema import Scalar
from runner.errors import UsageError
from runner.store.run_folder import alone_for, write_whole

IDENTITY = ("cpu", "device_name", "torch", "threads", "allocator")
"""The facts of a worker that must be equal, beside the machine, where a calibration is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tau:
    """The standard deviation of the log speedup between processes, of a kind of candidate in a mode.

    ``short``: of models with a short step of eager on a CPU. ``sd`` is the value that intervals assume;
    ``low`` and ``high`` are the 95 % interval of the measured one.
    """

    kind: str
    mode: str
    sd: float
    low: float
    high: float
    models: int
    processes: int  # of all models together
    short: bool = True  # older calibrations do not tell; most of their steps were short


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """``conditions``: the machine and the facts of ``IDENTITY``. ``date``: UTC, such as 2026-11-23."""

    date: str
    conditions: dict[str, Scalar]
    taus: tuple[Tau, ...]


def conditions_of(facts: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {"machine": platform.node(), **{name: facts.get(name) for name in IDENTITY}}


def matching(calibrations: Iterable[Calibration], facts: Mapping[str, Scalar]) -> Calibration | None:
    """The calibration of this machine under these facts of a worker."""
    here = conditions_of(facts)
    return next((calibration for calibration in calibrations if calibration.conditions == here), None)


def calibrations_path(current: Mapping[str, str] = os.environ) -> Path:
    """The file: in ``XDG_CONFIG_HOME``, or in ``~/.config``. ``UsageError`` without a home folder."""
    root = current.get("XDG_CONFIG_HOME", "")
    try:
        folder = Path(root) if root.startswith("/") else Path("~/.config").expanduser()
    except RuntimeError:
        raise UsageError("no home folder: HOME is not set; XDG_CONFIG_HOME may name a folder") from None
    return folder / "torchduet" / "calibrations.json"


def read_calibrations(path: Path | None = None) -> tuple[Calibration, ...]:
    """Those of the file; default: of the user's. () without one. ``UsageError`` for one that is damaged."""
    if path is None:
        try:
            path = calibrations_path()
            path.parent.exists()
        except (UsageError, PermissionError):  # no home folder, or that of another user
            return ()
    try:
        return from_json(tuple[Calibration, ...], json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); correct this, or remove it") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UsageError(f"{path} is no file of --calibrate; remove it, and calibrate again") from None


def keep(flag: str, new: Sequence[Calibration], path: Path) -> None:
    """Adds calibrations to the file, in place of those with the same conditions."""
    conditions = [calibration.conditions for calibration in new]
    with alone_for(flag, path):  # two that end together are both kept
        others = [old for old in read_calibrations(path) if old.conditions not in conditions]
        write_whole(path, json.dumps(to_json((*others, *new)), indent=1).encode())
