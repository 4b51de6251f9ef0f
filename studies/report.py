"""Tables and plots of a study, derived from its records, and printed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from runner.errors import UsageError
from studies.journal import read_lines, write_files

OK, FAILURES = 0, 1
STUDIES = {
    "training-time": "studies.training_time_report",
    "implementations": "studies.implementations_report",
}
"""Which module renders which study: ``render(lines) -> {file name: bytes}``, with a
``report.md``, and ``failures(lines) -> list of sentences``."""


def join(folders: Sequence[Path]) -> int:
    """Prints one table of several runs of study A. ``UsageError`` where one is of another study."""
    from studies.training_time_groups import joint_table

    runs = [read_lines(folder) for folder in folders]
    for folder, lines in zip(folders, runs, strict=True):
        if lines[0].get("study") != "training-time":
            raise UsageError(f"report: {folder} is no run of training-time; several folders join that alone")
    try:
        print("\n".join(joint_table(runs)))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"report: the records in one of the folders are damaged ({error!r})") from None
    return OK


def report(folder: Path) -> int:
    """Writes and prints the report of the study in ``folder``. 1 where one of its checks failed."""
    lines = read_lines(folder)
    module = STUDIES.get(str(lines[0].get("study")))
    if module is None:
        raise UsageError(f"report: {folder} holds a study that this program does not know")
    try:
        study = importlib.import_module(module)
        files, failures = study.render(lines), study.failures(lines)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"report: the records in {folder} are damaged ({error!r})") from None
    write_files(folder, files)
    print(files["report.md"].decode())
    for failure in failures:
        print(f"failed: {failure}")
    print(f"everything is in {folder}")
    return FAILURES if failures else OK
