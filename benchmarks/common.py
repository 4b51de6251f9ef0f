"""What the benchmarks share: the parser of their flags, and the records of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.schema import Record
from runner.store.record_file import read_records


def new_parser(about: str | None) -> argparse.ArgumentParser:
    """``about``: the docstring of the script, which ``--help`` shows as it is."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def records_of(folder: Path) -> tuple[Record, ...]:
    return read_records(folder / "records.jsonl").records
