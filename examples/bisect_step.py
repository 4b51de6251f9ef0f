"""A step of ``git bisect run``: is the build of this commit worse than a good one?

    git bisect run sh -c 'make build || exit 125; python examples/bisect_step.py GOOD_PYTHON NEW_PYTHON \\
        parity,regression --suites=timm_models --only=resnet50 --training --inductor --processes=3'

Both are measured in the same rounds: 1 if a gate of ``--fail-on`` fails, 0 if none does, 125 if undecided.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

RUNNER = [sys.executable, str(Path(__file__).resolve().parents[1] / "runner.py")]
SKIP = 125


def main(good: str, new: str, gates: str, *words: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        run = f"{folder}/run"
        builds = [f"--envs=good={good}", f"--envs=new={new}", f"--output-dir={run}"]
        if subprocess.run([*RUNNER, *words, *builds], check=False).returncode not in (0, 1):
            return SKIP
        compare = [*RUNNER, "--compare", f"{run}@good", f"{run}@new", f"--fail-on={gates}"]
        code = subprocess.run(compare, check=False).returncode
    return code if code in (0, 1) else SKIP


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
