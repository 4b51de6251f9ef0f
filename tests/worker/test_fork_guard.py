"""A forked worker opens its device first; if it cannot, a new interpreter takes its place.

What a host imports uses no driver: a worker that is forked from it could not use its device.
"""

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.codec import to_json
from harness.loading.suite_files import suite_names
from harness.schema import Protocol
from harness.worker import WHY_FRESH, host
from tests.accelerator import ROOT, Accelerator, in_place_of_the_cpu
from tests.cli.command import TOYS
from tests.command_line import ran
from tests.factories import Patch, make_job

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def opened_by_a_fork(folder: Path, machine: Accelerator) -> dict[str, Any]:
    """The reply of a worker, forked from this process, to ``open``."""
    request_read, requests = os.pipe()
    replies, reply_write = os.pipe()
    page = os.open(folder / "page", os.O_RDWR | os.O_CREAT)
    os.ftruncate(page, 4096)
    log = os.open(folder / "output.log", os.O_WRONLY | os.O_CREAT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of Python warn about threads
        pid = os.fork()
    if pid == 0:
        try:
            os.close(requests)
            os.close(replies)
            os.environ["PYTHONPATH"] = str(ROOT)
            os.environ["OMP_NUM_THREADS"] = "1"
            pipes = [request_read, reply_write, page, log]
            host._become_worker({"spawn": str(folder), "device": "cpu"}, pipes, "forked")
        finally:
            os._exit(70)
    for descriptor in (request_read, reply_write, page, log):
        os.close(descriptor)
    job = make_job("linear", suite=TOYS, candidates=("eager",), protocol=Protocol(threads=1))
    os.write(requests, json.dumps({"call": "open", "job": to_json(job)}).encode() + b"\n")
    with os.fdopen(replies, encoding="utf-8") as incoming:
        line = incoming.readline()
        os.close(requests)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, (folder / "output.log").read_text()
    reply: dict[str, Any] = json.loads(line)
    return reply


@pytest.mark.parametrize("poisoned", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_fork_that_cannot_open_its_device_is_replaced(tmp_path: Path, *, poisoned: bool) -> None:
    with in_place_of_the_cpu(Accelerator()) as machine:
        machine.opened_by = os.getpid() if poisoned else None  # a library of the host has used the driver
        reply = opened_by_a_fork(tmp_path, machine)["ok"]
    assert WHY_FRESH not in os.environ  # of this process
    assert reply["environment"]["worker"] == ("fresh" if poisoned else "forked")
    why = "a forked worker could not open cpu, so a new interpreter was started (RuntimeError: Cannot re-"
    remarks = [remark for remark in reply["model"]["remarks"] if remark.startswith(why)]
    assert len(remarks) == poisoned
    assert (why in (tmp_path / "output.log").read_text()) is poisoned


# -- what a host imports --------------------------------------------------------------------------
def printed(*words: str) -> str:
    """By a new Python, which ends well."""
    done = ran(sys.executable, *words, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("suite", suite_names())
def test_the_imports_of_a_host_ask_no_driver(suite: str) -> None:
    case = {"tiny_gpt": "HuggingFaceGPT_addition", "huggingface": "BertForMaskedLM"}.get(suite, "")
    assert json.loads(printed("-m", "tests.worker.importing", suite, case).splitlines()[-1]) == []


def test_a_library_that_asks_for_a_gpu_is_answered_without_driver(monkeypatch: Patch) -> None:
    """As Inductor of torch 2.11 asks in an import, with a card: seen on an H100."""
    asked = list[str]()

    def count() -> int:
        asked.append("driver")
        return 1

    monkeypatch.delenv(host.ASK_NVML, raising=False)
    monkeypatch.setattr("torch.cuda._is_compiled", lambda: True)
    monkeypatch.setattr("torch.cuda._device_count_nvml", lambda: 1)
    monkeypatch.setattr("torch._C._cuda_getDeviceCount", count, raising=False)
    with host._importing():
        assert torch.cuda.is_available()
        assert not asked
    assert host.ASK_NVML not in os.environ
    assert torch.cuda.is_available()
    assert asked == ["driver"]


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
    named = ["torch.cuda.is_available", "torch.accelerator.device_count", "torch.cuda.init"]
    assert json.loads(printed("-c", program)) == named
