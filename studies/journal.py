"""A study's folder: ``records.jsonl``, appended and synced line by line, and the files derived from it.

Kinds of lines: "study" (the first line: command, options, environment), "chunk" (consecutive steps of
one variant), "point" (an evaluation), "outcome" (always one for each variant and seed).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.errors import UsageError
from runner.names import plain
from runner.store.record_file import opened, stored
from runner.store.run_folder import RECORDS, new_folder

if TYPE_CHECKING:
    import torch

    from studies.options import StudyOptions

Line = Mapping[str, Any]
PASS, CUT_SHORT = "PASS", "CUT_SHORT"
"""Statuses of a training. One that was killed is compared up to its last evaluation."""


def say(line: str) -> None:
    """Prints a line at once, without control characters."""
    print(plain(line), flush=True)


class Journal:
    """The new or empty folder of a run of a study. ``UsageError`` if the folder is not empty."""

    def __init__(self, wanted: Path | None, study: str) -> None:
        self.path, self._study = new_folder(wanted, f"study-{study}"), study

    def begin(self, options: StudyOptions, command: Sequence[str], **facts: Any) -> torch.device:
        """Sets the threads and the device, and writes the first line: study, options and environment."""
        import torch

        from harness.precision import settle
        from harness.worker.environment import describe

        if options.threads:
            torch.set_num_threads(options.threads)
        device = torch.device(options.device)
        settle(device)
        told = {"command": ["python", "-m", "studies", *command], "options": asdict(options), **facts}
        self.write("study", study=self._study, **told, environment=describe(device))
        return device

    def write(self, kind: str, **facts: Any) -> None:
        """Adds one line and waits until it is on the disk. NaN and infinity become null."""
        text = json.dumps({"kind": kind, **facts}, default=str)  # str: of a path
        finite = json.loads(text, parse_constant=lambda _: None)
        with (self.path / RECORDS).open("ab") as file:
            file.write(json.dumps(finite).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def read_lines(folder: Path) -> list[Line]:
    """The readable lines; the last line of a killed run may be incomplete. ``UsageError`` if none."""
    path = stored(folder / RECORDS)
    if not path.is_file():
        raise UsageError(f"report: there is no {RECORDS} in {folder}; give the folder of a study")
    lines: list[Line] = []
    with opened(path) as file:
        for text in file:
            with suppress(ValueError):
                lines.append(json.loads(text))
    lines = [line for line in lines if isinstance(line, dict)]
    if not lines or lines[0].get("kind") != "study":
        raise UsageError(f"report: {path} is not the record of a study")
    return lines


def is_journal(folder: Path) -> bool:
    """Whether a study wrote the records itself. Those of study C are the program's own."""
    with opened(folder / RECORDS) as file:
        return b'"kind": "study"' in file.readline()


def of_kind(lines: Sequence[Line], kind: str) -> list[Line]:
    return [line for line in lines if line.get("kind") == kind]
