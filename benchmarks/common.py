"""What the benchmarks share: flags, folders, and runs of the program."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness.schema import Record
from runner.store.record_file import read_records

ROOT = Path(__file__).resolve().parent.parent


def new_parser(about: str | None) -> argparse.ArgumentParser:
    """``about``: the docstring of the script, which ``--help`` shows as it is."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def records_of(folder: Path) -> tuple[Record, ...]:
    return read_records(folder / "records.jsonl").records


@contextmanager
def folder_for(keep: Path | None, name: str) -> Iterator[Path]:
    """The folder to keep, or a temporary folder."""
    with tempfile.TemporaryDirectory(prefix=f"torchduet-{name}-") as temporary:
        yield keep or Path(temporary)


def run_program(folder: Path, *flags: str, variables: Mapping[str, str] | None = None) -> tuple[Record, ...]:
    """The records of a run of ``runner.py`` into this folder. ``SystemExit`` if the run failed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "runner.py"), *flags, f"--output-dir={folder}"],
        check=False,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **(variables or {})},
    )
    if done.returncode not in (0, 1):  # 1: a candidate failed, and its record has the reason
        raise SystemExit(f"{' '.join(flags)} ended with {done.returncode}")
    return records_of(folder)
