"""Writes the tables and plots of a study from its records, and prints the report."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from runner.cli.exit_codes import FAILURES, OK
from runner.errors import UsageError
from runner.labels import plain
from studies.journal import STUDIES, package_of, read_lines, runs_below, write_files

JOINED = "training-time"
DAMAGE = (KeyError, TypeError, ValueError)


def join(folders: Sequence[Path], into: Path | None = None) -> int:
    """Prints one table of several runs of study A. ``UsageError`` for a run of another study.

    ``into``: the table is also written to ``report.md`` in this folder.
    """
    runs = [read_lines(folder) for folder in folders]
    for folder, lines in zip(folders, runs, strict=True):
        if lines[0].get("study") != JOINED:
            raise UsageError(
                f"report: {folder} is not a run of {JOINED}; only this study accepts several folders"
            )
    study = importlib.import_module(f"{package_of(JOINED)}.report")
    try:
        text = "\n".join(study.joint_table(runs, [plain(folder.name) for folder in folders]))
    except DAMAGE as error:
        raise UsageError(f"report: the records in one of the folders are damaged ({error!r})") from None
    print(text)
    if into is not None:
        write_files(into, {"report.md": f"{text}\n".encode()})
        print(f"everything is in {into}")
    return OK


def report(folder: Path) -> int:
    """Writes and prints the report of the study in ``folder``. Returns 1 if a check failed."""
    runs = runs_below(folder)
    if runs not in ([], [folder]):  # a folder for each environment
        codes = [report(run) for run in runs]
        return max(*codes, join(runs, into=folder), OK)
    lines = read_lines(folder)
    name = lines[0].get("study")
    if name not in STUDIES:
        raise UsageError(f"report: {folder} has the records of an unknown study")
    try:
        files, failures = importlib.import_module(f"{package_of(name)}.report").render(lines)
    except DAMAGE as error:
        raise UsageError(f"report: the records in {folder} are damaged ({error!r})") from None
    write_files(folder, files)
    print(files["report.md"].decode())
    for failure in failures:
        print(f"failed: {failure}")
    print(f"everything is in {folder}")
    return FAILURES if failures else OK
