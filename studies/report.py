"""Tables and plots of a study, derived from its records, and printed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from runner.errors import UsageError
from runner.exit_codes import FAILURES, OK
from runner.labels import plain
from studies.journal import RECORDS, read_lines, write_files

STUDIES = {
    "training-time": "studies.training_time_report",
    "implementations": "studies.implementations_report",
    "compile-modes": "studies.compile_modes_report",
}
"""Which module renders which study: ``render(lines) -> {file name: bytes}``, with a
``report.md``, and ``failures(lines) -> list of sentences``."""


def join(folders: Sequence[Path], into: Path | None = None) -> int:
    """Prints one table of several runs of study A. ``UsageError`` where one is of another study.

    ``into`` is a folder that gets it as ``report.md``.
    """
    from studies.training_time_groups import joint_table

    runs = [read_lines(folder) for folder in folders]
    for folder, lines in zip(folders, runs, strict=True):
        if lines[0].get("study") != "training-time":
            raise UsageError(f"report: {folder} is no run of training-time; several folders join that alone")
    try:
        text = "\n".join(joint_table(runs, [plain(folder.name) for folder in folders]))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"report: the records in one of the folders are damaged ({error!r})") from None
    print(text)
    if into is not None:
        write_files(into, {"report.md": f"{text}\n".encode()})
        print(f"everything is in {into}")
    return OK


def report(folder: Path) -> int:
    """Writes and prints the report of the study in ``folder``. 1 where one of its checks failed."""
    runs = tuple(sorted(path.parent for path in folder.glob(f"*/{RECORDS}")))
    if runs and not (folder / RECORDS).exists():  # one for each environment
        codes = [report(run) for run in runs]
        return max(*codes, join(runs, into=folder), OK)
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
