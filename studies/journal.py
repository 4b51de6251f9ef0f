"""A study's folder: ``records.jsonl``, appended and synced line by line, and what is derived from it.

Kinds of lines: "study" (the first: command, options, environment), "chunk" (steps that
one variant did in one go), "point" (an evaluation), "outcome" (one for each variant and seed, always).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import UsageError
from runner.run_folder import write_whole

if TYPE_CHECKING:
    import torch

    from studies.compile_modes_options import CompileModesOptions
    from studies.implementations_options import ImplementationsOptions
    from studies.options import TrainingTimeOptions

    StudyOptions = CompileModesOptions | ImplementationsOptions | TrainingTimeOptions

RECORDS = "records.jsonl"
Line = Mapping[str, Any]


class Journal:
    """The folder of one run of a study, new or empty. ``UsageError`` for one that holds anything."""

    def __init__(self, wanted: Path | None, study: str) -> None:
        self.path = new_folder(wanted, study)
        try:
            self._file = (self.path / RECORDS).open("xb")
        except OSError as error:
            raise UsageError(f"--output-dir: {self.path} cannot be used ({error.strerror})") from None

    def write(self, kind: str, **facts: Any) -> None:
        """Adds one line and waits until it is on the disk. Numbers that are not finite become null."""
        line = json.dumps({"kind": kind, **_finite(facts)}, allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def new_folder(wanted: Path | None, study: str) -> Path:
    """The folder that was asked for, or one under ``logs``. ``UsageError`` where it holds anything."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
    path = wanted or Path("logs") / f"{stamp}-study-{study}"
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(f"--output-dir: {path} holds something already; name a new folder")
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output-dir: {path} cannot be used ({error.strerror})") from None
    return path


def begin(
    journal: Journal, study: str, options: StudyOptions, command: Sequence[str], **facts: Any
) -> torch.device:
    """Sets threads and the device as asked, and writes the first line: what is run, and where."""
    import torch

    from harness.environment import describe
    from harness.precision import settle

    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    settle(device)
    journal.write(
        "study",
        study=study,
        command=["python", "-m", "studies", *command],
        options={
            key: str(value) if isinstance(value, Path) else value for key, value in asdict(options).items()
        },
        **facts,
        environment=describe(device),
    )
    return device


def read_lines(folder: Path) -> list[Line]:
    """Every line that can be read; the last one of a killed run may be torn. ``UsageError`` without any."""
    path = folder / RECORDS
    if not path.is_file():
        raise UsageError(f"report: there is no {RECORDS} in {folder}; give the folder of a study")
    found: list[Line] = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            found.append(line)
    if not found or found[0].get("kind") != "study":
        raise UsageError(f"report: {path} is not the record of a study")
    return found


def of_kind(lines: Sequence[Line], kind: str) -> list[Line]:
    return [line for line in lines if line.get("kind") == kind]


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Derived files, each whole or not at all. ``UsageError`` when the folder cannot be written."""
    try:
        for name, content in files.items():
            write_whole(folder / name, content)
    except OSError as error:
        raise UsageError(
            f"{error.filename} cannot be written ({error.strerror}); the records are safe: mend that, "
            f"then run: python -m studies report {folder}"
        ) from None


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value
