"""What a host imports uses no driver: a worker that is forked from it could not use its device."""

import json
import subprocess
import sys

import pytest

from harness.loading.suite_files import suite_names
from tests.accelerator import ROOT


@pytest.mark.long
@pytest.mark.parametrize("suite", suite_names())
def test_the_imports_of_a_host_ask_no_driver(suite: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.worker.importing", suite],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.mark.slow
def test_the_check_sees_a_library_that_asks() -> None:
    program = (
        "import json, torch\n"
        "from tests.worker.importing import forbid\n"
        "asked = forbid()\n"
        "for ask in (torch.cuda.is_available, torch.accelerator.device_count, torch.cuda.init):\n"
        "    try: ask()\n"
        "    except AssertionError: pass\n"
        "torch.accelerator.current_accelerator()\n"
        "print(json.dumps([name for name, _ in asked]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    named = ["torch.cuda.is_available", "torch.accelerator.device_count", "torch.cuda.init"]
    assert json.loads(done.stdout) == named
