"""A forked worker opens its device first; if it cannot, a new interpreter takes its place."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from harness import devices
from harness.codec import to_json
from harness.schema import Protocol
from harness.worker import WHY_FRESH, host
from tests.accelerator import ROOT, Accelerator, in_place_of_the_cpu
from tests.factories import make_job

TOYS = str(ROOT / "tests" / "suites" / "toys.py")
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
            host._become_worker(folder, pipes, "forked", devices.named("cpu"))
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
def test_a_fork_that_cannot_open_its_device_is_replaced_by_a_new_interpreter(
    tmp_path: Path, *, poisoned: bool
) -> None:
    with in_place_of_the_cpu(Accelerator()) as machine:
        machine.opened_by = os.getpid() if poisoned else None  # a library of the host has used the driver
        reply = opened_by_a_fork(tmp_path, machine)["ok"]
    assert WHY_FRESH not in os.environ  # of this process
    assert reply["environment"]["worker"] == ("fresh" if poisoned else "forked")
    why = "a forked worker could not open cpu, so a new interpreter was started (RuntimeError: Cannot re-"
    remarks = [remark for remark in reply["model"]["remarks"] if remark.startswith(why)]
    assert len(remarks) == poisoned
    assert (why in (tmp_path / "output.log").read_text()) is poisoned
