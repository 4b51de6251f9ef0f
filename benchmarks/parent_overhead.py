"""The parent's cost of a job. The workers are fakes; plan, folders, records and progress are real.

    python benchmarks/parent_overhead.py                 # plans of 1,000 and 10,000 jobs

Each plan runs in a process of its own. The limit is 5 ms of processor time a job at 10,000 jobs. After the
plan is written, memory should be constant and time linear; the last column compares with the smallest plan.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import new_parser, records_of  # noqa: E402 - nothing is installed
from harness.schema import Record  # noqa: E402
from runner.cli.commands import job_command  # noqa: E402
from runner.cli.measuring import measure_missing  # noqa: E402
from runner.engine import Gate  # noqa: E402
from runner.engine.executors import Stop, Work  # noqa: E402
from runner.engine.executors.local import LocalExecutor, Watch  # noqa: E402
from runner.store.run_folder import RunFolder  # noqa: E402

SOURCE = ROOT / "results" / "tiny_gpt-training-bfloat16-cpu"
MOST_MS = 5.0


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # what a process of this program is told
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one)))
        return 0
    found = [alone(jobs) for jobs in options.jobs]
    first = found[0]
    rows = [
        (
            f"{one['jobs']:,}",
            *(one[name] for name in ("wall_ms", "cpu_ms", "plan_ms", "plan_kb", "growth_kb")),
            one["cpu_ms"] / first["cpu_ms"],
        )
        for one in found
    ]
    headers = (
        *("jobs", "wall ms\na job", "processor ms\na job", "of it for\nthe plan", "kB a job\nfor the plan"),
        *("kB a job\nthereafter", "x the\nfirst"),
    )
    print(tabulate(rows, headers=headers, floatfmt=".2f"))
    print(f"limit: {found[-1]['cpu_ms'] / MOST_MS:.2f} of {MOST_MS:g} ms a job")
    return 0 if found[-1]["cpu_ms"] <= MOST_MS else 1


def alone(jobs: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", str(jobs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(jobs: int) -> dict[str, float]:
    """Milliseconds and kilobytes a job; two candidates each, 30 rounds or as many as the source has."""
    model = records_of(SOURCE)[:1]
    plan = [
        replace(
            model[0].job,
            case=replace(model[0].job.case, name=f"model_{number}"),
            candidates=("aot_eager", "inductor"),
        )
        for number in range(jobs)
    ]

    def made_up(work: Work, watch: Watch, stop: Stop, gate: Gate) -> Iterator[Record]:
        for candidate in work.candidates:
            yield replace(model[0], job=work.job, candidate=candidate)

    console = Console(file=io.StringIO(), width=100)
    with tempfile.TemporaryDirectory(prefix="torchduet-parent-") as temporary:
        memory, wall, cpu = peak_kb(), time.perf_counter(), time.process_time()
        folder = RunFolder.create(Path(temporary) / "run", plan, ["benchmark"])
        planned, memory_planned = time.process_time(), peak_kb()
        measure_missing(folder, plan, console, LocalExecutor(job_command, measure=made_up, fork=False))
        ended, wall_s = time.process_time(), time.perf_counter() - wall
    return {
        "jobs": jobs,
        "wall_ms": 1e3 * wall_s / jobs,
        "cpu_ms": 1e3 * (ended - cpu) / jobs,
        "plan_ms": 1e3 * (planned - cpu) / jobs,
        "plan_kb": (memory_planned - memory) / jobs,
        "growth_kb": (peak_kb() - memory_planned) / jobs,
    }


def peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    sys.exit(main())
