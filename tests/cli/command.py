"""The real command line, as a person types it."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.cli.forked import forks, interpreter_settings

ROOT = Path(__file__).parents[2]
TOYS = str(ROOT / "tests" / "suites" / "toys.py")
ANIMALS = str(ROOT / "tests" / "zoo" / "animals.py")


def runner(*words: str, cwd: Path = ROOT, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """``python runner.py`` with these words: its exit code and what it printed."""
    return forks(interpreter_settings()).run(words, cwd, timeout)


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def statuses(folder: Path) -> dict[tuple[str, str], str]:
    run_records = records(folder)
    by_key = {(r["job"]["case"]["name"], r["candidate"]): r["status"] for r in run_records}
    assert len(by_key) == len(run_records)
    return by_key
