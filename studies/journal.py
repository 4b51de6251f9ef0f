"""A study's folder: ``records.jsonl``, appended and synced line by line, and the files derived from it.

Kinds of lines: "study" (the first line: command, options, environment), "chunk" (consecutive steps of
one variant), "point" (an evaluation), "outcome" (always one for each variant and seed).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import UsageError
from runner.labels import plain
from runner.store.packed import opened, stored
from runner.store.run_folder import new_folder, write_whole

if TYPE_CHECKING:
    import torch

    from studies.options import StudyOptions

JOURNALED = ("training-time", "implementations")
"""The studies whose records are a journal."""
RECORDS = "records.jsonl"
Line = Mapping[str, Any]


def package_of(study: str) -> str:
    """The package of a study. Its module ``run`` has ``run(options, command) -> its folder``, its module
    ``report`` has ``render(lines) -> ({file name: bytes}, [failures])``, with ``report.md``."""
    return f"studies.{study.replace('-', '_')}"


def say(line: str) -> None:
    """Prints a line at once, without control characters."""
    print(plain(line), flush=True)


class Journal:
    """The new or empty folder of a run of a study. ``UsageError`` if the folder is not empty."""

    def __init__(self, wanted: Path | None, study: str) -> None:
        self.path = new_folder(wanted, f"study-{study}")
        try:
            self._file = (self.path / RECORDS).open("xb")
        except OSError as error:
            raise UsageError(f"--output-dir: {self.path} cannot be used ({error.strerror})") from None

    def write(self, kind: str, **facts: Any) -> None:
        """Adds one line and waits until it is on the disk. NaN and infinity become null."""
        line = json.dumps({"kind": kind, **_finite(facts)}, allow_nan=False, default=str)  # str: of a path
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


PASS, CUT_SHORT = "PASS", "CUT_SHORT"
"""Statuses of a training. One that was killed is compared up to its last evaluation."""


def begin(
    journal: Journal, study: str, options: StudyOptions, command: Sequence[str], **facts: Any
) -> torch.device:
    """Sets the threads and the device, and writes the first line: study, options and environment."""
    import torch

    from harness.precision import settle
    from harness.worker.environment import describe

    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    settle(device)
    journal.write(
        "study",
        study=study,
        command=["python", "-m", "studies", *command],
        options=asdict(options),
        **facts,
        environment=describe(device),
    )
    return device


def read_lines(folder: Path) -> list[Line]:
    """The readable lines; the last line of a killed run may be incomplete. ``UsageError`` if none."""
    path = stored(folder / RECORDS)
    if not path.is_file():
        raise UsageError(f"report: there is no {RECORDS} in {folder}; give the folder of a study")
    lines: list[Line] = []
    with opened(path) as file:
        texts = file.read().decode(errors="replace").splitlines()
    for text in texts:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            lines.append(line)
    if not lines or lines[0].get("kind") != "study":
        raise UsageError(f"report: {path} is not the record of a study")
    return lines


def is_journal(folder: Path) -> bool:
    """Whether a study wrote the records itself. Those of study C are the program's own."""
    with opened(folder / RECORDS) as file:
        return b'"kind": "study"' in file.readline()


def of_kind(lines: Sequence[Line], kind: str) -> list[Line]:
    return [line for line in lines if line.get("kind") == kind]


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes derived files, each completely or not at all. ``UsageError`` if the folder is not writable."""
    try:
        for name, content in files.items():
            write_whole(folder / name, content)
    except OSError as error:
        raise UsageError(
            f"{error.filename} cannot be written ({error.strerror}); the records are safe: correct this, "
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
