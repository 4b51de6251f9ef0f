"""The real command line, as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TOYS = str(ROOT / "tests" / "suites" / "toys.py")
ANIMALS = str(ROOT / "tests" / "zoo" / "animals.py")


def runner(*words: str, cwd: Path = ROOT, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "runner.py"), *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def statuses(folder: Path) -> dict[tuple[str, str], str]:
    found = records(folder)
    by_key = {(r["job"]["case"]["name"], r["candidate"]): r["status"] for r in found}
    assert len(by_key) == len(found)
    return by_key
