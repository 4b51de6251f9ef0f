"""Every curated model of tiny_gpt, huggingface and timm_models, checked and timed.

    python benchmarks/headline.py --keep logs/headline              # all parts, one after another
    python benchmarks/headline.py --keep logs/headline --hours 2    # a sitting; the same command continues

Small scale, float32, inference and training, aot_eager and inductor, parity and times, the default protocol.
On a CPU, every job has one thread; run the script on a core of its own (``taskset -c 0``). The same
command on a second core takes parts that the first does not measure. The plan is split into parts of
about equal time. A part that is complete is not measured again, and an interrupted part is resumed. A
sitting begins no part that would probably end after ``--hours``. When all parts are complete, they are
joined in ``KEEP/merged``.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import new_parser  # noqa: E402 - nothing is installed
from runner.cli.exit_codes import FAILURES, OK  # noqa: E402
from runner.store.run_folder import locked  # noqa: E402

SUITES = "tiny_gpt,timm_models,huggingface"
COMPILERS = "aot_eager,inductor"
DONE = "complete"


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--keep", type=Path, required=True, help="the folder of the parts")
    parser.add_argument("--parts", type=int, default=40, help="the same number in every sitting")
    parser.add_argument("--hours", type=float, help="the length of this sitting")
    parser.add_argument("--devices", default="cpu")
    options = parser.parse_args()
    ends = time.monotonic() + 3600 * options.hours if options.hours else None
    longest_s = 0.0
    folders = [options.keep / f"part-{number:02}" for number in range(options.parts)]
    options.keep.mkdir(parents=True, exist_ok=True)
    for number, folder in enumerate(folders):
        began = time.monotonic()
        if ends is not None and began + longest_s > ends:
            break
        with taken(folder) as free:
            if not free or (folder / DONE).exists():
                continue
            measure(folder, number, options.parts, options.devices)
            (folder / DONE).touch()
        longest_s = max(longest_s, time.monotonic() - began)
    left = sum(not (folder / DONE).exists() for folder in folders)
    if left:
        print(f"{left} of {len(folders)} parts are left; the same command continues")
        return 0
    merged = options.keep / "merged"
    if not merged.exists():
        program("--merge", *map(str, folders), f"--output-dir={merged}")
    print(merged)
    return 0


@contextmanager
def taken(folder: Path) -> Iterator[bool]:
    """Whether no other process measures this part. None does before the end of the block."""
    with folder.with_suffix(".lock").open("w") as file:
        yield locked(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


def measure(folder: Path, number: int, parts: int, devices: str) -> None:
    """One part, from its beginning or from where it was interrupted."""
    if (folder / "run.json").exists():
        program(f"--resume={folder}")
        return
    program(
        *(f"--suites={SUITES}", "--inference", "--training", "--scale=small", "--dtypes=float32"),
        *(f"--compilers={COMPILERS}", f"--devices={devices}", *(["--threads=1"] if devices == "cpu" else [])),
        *(f"--total-partitions={parts}", f"--partition-id={number}", f"--output-dir={folder}"),
    )


def program(*flags: str) -> None:
    """``SystemExit`` if the program was interrupted or refused its flags. A candidate may fail."""
    command = [sys.executable, str(ROOT / "runner.py"), *flags]
    done = subprocess.run(command, check=False)
    if done.returncode not in (OK, FAILURES):
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
