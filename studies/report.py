"""Writes the tables and plots of a study from its records, and prints the report."""

from __future__ import annotations

import importlib
from pathlib import Path

from runner.cli.exit_codes import FAILURES, OK
from runner.errors import UsageError
from studies.journal import STUDIES, package_of, read_lines, write_files

DAMAGE = (KeyError, TypeError, ValueError)


def report(folder: Path) -> int:
    """Writes and prints the report of the study in ``folder``. Returns 1 if a check failed."""
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
