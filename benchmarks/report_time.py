"""How long the reports of a large run take, and how much memory: for 10,000 records at most 10 s and 500 MB.

    python benchmarks/report_time.py                     # all reports, then each format alone
    python benchmarks/report_time.py --records 1000 --formats html
    python benchmarks/report_time.py --keep logs/large   # leaves the made-up run there, to look at its page

The records are those of a real run, repeated under new names with their times multiplied by random factors.
Every measurement is ``runner.py --visualize-logs`` in a process of its own, as a user runs it.
"""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import folder_for, new_parser  # noqa: E402 - nothing is installed

SOURCE = ROOT / "results" / "tiny_gpt-training-bfloat16-cpu" / "records.jsonl"
MOST_S, MOST_MB = 10.0, 500.0
COLUMNS = ("baseline_s", "candidate_s")


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--formats", nargs="*", default=["json", "csv", "md", "txt", "png", "svg", "html"])
    parser.add_argument("--source", type=Path, default=SOURCE, help="records.jsonl of a real run")
    parser.add_argument("--keep", type=Path, help="a new folder for the made-up run")
    options = parser.parse_args()
    with folder_for(options.keep, "report") as folder:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "records.jsonl").open("w", encoding="utf-8") as file:
            for record in made_up(options.source, options.records, options.rounds):
                file.write(json.dumps(record) + "\n")
        # what reading the records and deriving the numbers costs is in each of these
        asked = [(), *((name,) for name in options.formats)]
        rows = [measured(folder, formats) for formats in asked]
        page = folder / "report.html"
        size = page.stat().st_size / 1e6 if page.exists() else None
    print(f"{options.records:,} records of {options.rounds} rounds\n")
    print(tabulate(rows, headers=("formats", "wall s", "processor s", "peak MB"), floatfmt=".1f"))
    if size is not None:
        print(f"\nreport.html: {size:.1f} MB")
    _, wall_s, _, peak_mb = rows[0]
    print(f"limits: {wall_s / MOST_S:.2f} of {MOST_S:g} s, {peak_mb / MOST_MB:.2f} of {MOST_MB:g} MB")
    return 0 if wall_s <= MOST_S and peak_mb <= MOST_MB else 1


def made_up(source: Path, count: int, rounds: int) -> Iterator[dict[str, Any]]:
    """``count`` records of new models; those of one job stay together, and their eager times alike."""
    jobs: dict[str, list[dict[str, Any]]] = {}
    for line in source.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        jobs.setdefault(json.dumps(record["job"]), []).append(record)
    templates = list(jobs.values())
    rng = random.Random(0)
    made = 0
    while made < count:
        number = made
        of_job = copy.deepcopy(templates[number % len(templates)])[: count - made]
        eager: list[float] = []
        for record in of_job:
            case = record["job"]["case"]
            case["name"] = f"{case['name']}_{number:05}"
            times = record["samples"]
            if times is not None:
                eager = eager or noisy(times["baseline_s"], rounds, 1.0, rng)
                factor = rng.lognormvariate(0, 0.1)
                candidate = noisy(times["candidate_s"], rounds, factor, rng)
                for name, column in times.items():
                    if isinstance(column, list):
                        times[name] = [column[i % len(column)] for i in range(rounds)]
                times.update(baseline_s=eager, candidate_s=candidate)
            yield record
        made += len(of_job)


def noisy(column: list[float], rounds: int, factor: float, rng: random.Random) -> list[float]:
    return [column[i % len(column)] * factor * rng.lognormvariate(0, 0.02) for i in range(rounds)]


def measured(folder: Path, formats: tuple[str, ...]) -> tuple[str, float, float, float]:
    """(formats, wall seconds, processor seconds, peak resident MB) of making them."""
    command = [sys.executable, str(ROOT / "runner.py"), "--visualize-logs", str(folder)]
    command += [f"--format={','.join(formats)}"] if formats else []
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1: a candidate of the run failed
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    # Linux counts ru_maxrss in KiB
    return ", ".join(formats) or "all", wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    sys.exit(main())
