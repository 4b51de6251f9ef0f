"""Start-up times: of the program, of a fresh worker, and of a worker forked from a host with all imports.

    python benchmarks/start_up.py

Prints medians and ratios. A job's start is the time from the request for a worker to its first answer, before
it builds a model.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import new_parser  # noqa: E402 - nothing is installed
from harness.codec import to_json  # noqa: E402
from harness.schema import Case, Job, Mode  # noqa: E402
from runner.engine.host_process import HostPool  # noqa: E402
from runner.engine.worker_process import WorkerProcess  # noqa: E402
from runner.engine.worker_start import ForkedStart, PlainStart, Start  # noqa: E402
from runner.plan.interpreter import worker_command, worker_environment  # noqa: E402

MOST_FORKED_S = 0.1


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--suite", default="huggingface", help="whose libraries the host imports")
    options = parser.parse_args()
    runner = (sys.executable, str(ROOT / "runner.py"))
    importing = (
        "import harness.worker.session; from harness.loading.suite_files import load_suite; "
        f"load_suite({options.suite!r}).warm()"
    )
    cold: list[tuple[str, Callable[[], float]]] = [
        ("python -c pass", lambda: command(sys.executable, "-c", "pass")),
        ("runner.py --help", lambda: command(*runner, "--help")),
        ("runner.py --list", lambda: command(*runner, "--list", f"--suites={options.suite}", "--inference")),
        (f"importing torch and {options.suite}", lambda: command(sys.executable, "-c", importing)),
    ]
    rows = [(name, median(action, options.repetitions)) for name, action in cold]
    import_s = rows[-1][1]
    with tempfile.TemporaryDirectory(prefix="torchduet-start-") as folder, HostPool() as pool:
        plain = PlainStart(command=worker_command())
        rows.append(("a job's start, plain", median(lambda: job_start(plain, options.suite, folder), 3)))
        forked = ForkedStart(pool=pool, suite=options.suite)
        job_start(forked, options.suite, folder)  # starts the host
        forked_s = median(lambda: job_start(forked, options.suite, folder), options.repetitions)
        rows.append(("a job's start, forked", forked_s))
    table = [(name, seconds, seconds / import_s) for name, seconds in rows]
    print(tabulate(table, headers=("", "s", "of the import"), floatfmt=".3f"))
    print(f"limit: {forked_s / MOST_FORKED_S:.2f} of {MOST_FORKED_S:g} s for a job's start")
    return 0 if forked_s <= MOST_FORKED_S else 1


def median(action: Callable[[], float], repetitions: int) -> float:
    return statistics.median(action() for _ in range(repetitions))


def command(*words: str) -> float:
    start = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    return time.perf_counter() - start


def job_start(start: Start, suite: str, folder: str) -> float:
    """Seconds until a worker answers its first call. The call has an unknown name, so no model is built."""
    case = Case(suite=suite, name="none", mode=Mode.INFERENCE, batch_size=1, published_batch_size=1)
    job = Job(case=case, device="cpu", dtype="float32", candidates=("eager",))
    log = Path(folder) / "log"
    began = time.perf_counter()
    with WorkerProcess(start, worker_environment(None), log, lambda _: None) as worker:
        reply = worker.call({"call": "none", "job": to_json(job)}, time.monotonic() + 120)
        took = time.perf_counter() - began
    if "failed" not in reply:
        raise SystemExit(f"the worker answered {reply}")
    return took


if __name__ == "__main__":
    sys.exit(main())
