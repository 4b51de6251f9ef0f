"""Around the numbers: counts, the mode, hints, refusals; commands that run where the person is."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import PATIENCE_S, ROOT, begun, wait_until
from tests.command_line import ran
from tests.factories import known

pytestmark = pytest.mark.slow


def test_stopped_before_anything_was_measured(tmp_path: Path) -> None:
    building, stopped = tmp_path / "building", tmp_path / "stopped"
    # the first call is the check before the run, the second the worker's: it lasts until Ctrl-C was seen
    (tmp_path / "slow.py").write_text(
        "import time, torch\n"
        "from pathlib import Path\n"
        "def make():\n"
        f"    building, stopped = Path({str(building)!r}), Path({str(stopped)!r})\n"
        "    again = building.exists()\n"
        "    building.write_text('again' if again else 'once')\n"
        "    while again and not stopped.exists(): time.sleep(0.05)\n"
        "    return torch.nn.Linear(2, 2), torch.ones(2, 2)\n"
    )
    words = [f"--model={tmp_path / 'slow.py'}:make", "--training", "--compilers=eager", "-dcpu"]
    with begun(*words, f"--output-dir={tmp_path / 'run'}") as run:
        wait_until(lambda: building.exists() and building.read_text() == "again")
        run.send_signal(signal.SIGINT)
        errors = known(run.stderr).readline()
        stopped.touch()
        output, more = run.communicate(timeout=PATIENCE_S)
        errors += more
    assert run.returncode == 130
    assert "Stopped: nothing was measured yet; go on with: python runner.py --resume" in output
    assert "holds no record" not in output + errors


def test_elsewhere_commands_are_those_of_the_installed_program(tmp_path: Path) -> None:
    """As from a wheel: the packages without the clone's runner.py beside them."""
    site = tmp_path / "site"
    for package in ("runner", "harness", "suites", "torchduet"):
        shutil.copytree(ROOT / package, site / package, ignore=shutil.ignore_patterns("__pycache__"))
    work = tmp_path / "work"
    work.mkdir()

    def installed(*words: str) -> subprocess.CompletedProcess[str]:
        program = "import sys; from runner.cli.main import main; sys.exit(main(sys.argv[1:]))"
        variables = {**os.environ, "PYTHONPATH": str(site)}
        return ran(sys.executable, "-c", program, *words, cwd=work, env=variables)

    commands = installed("--training", "--only=MLP_addition", "--print-run-commands", "-dcpu")
    assert commands.stdout.startswith("torchduet --suites=tiny_gpt --training "), commands.stderr
    text = installed("--help").stdout
    assert text.startswith("usage: torchduet ")
    assert "torchduet --suites=tiny_gpt --training --bfloat16" in text
    assert "runner.py" not in text
    run = work / "logs" / "run"
    run.mkdir(parents=True)
    (run / "records.jsonl").touch()
    (run / "run.json").write_text(json.dumps({"jobs": [], "command": []}))
    assert installed("--history", str(run.parent)).returncode == 0
    assert "torchduet --history" in (run.parent / "index.html").read_text()
