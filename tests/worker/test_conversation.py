"""The worker as a process: calls and replies over its pipes, and one job run by hand."""

import io
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.codec import from_json, to_json
from harness.schema import BASELINE, Failure, Job, Mode, ModelFacts, Parity, Protocol, Round
from harness.worker.main import main, serve
from harness.worker.status_page import Activity
from runner.engine.worker_process import WorkerProcess
from runner.engine.worker_start import PlainStart
from runner.plan.interpreter import worker_command, worker_environment
from tests.cli.command import PATIENCE_S, TOYS
from tests.factories import Capture, make_job
from tests.worker.planted import silent

NOISY = """
import os, subprocess, sys
import torch
from harness.workload import Workload

print('{"ok": {"model": "a lie"}}')

class Noisy(torch.nn.Linear):
    def forward(self, x):
        if not torch.compiler.is_compiling():
            print('{"ok": "printed"}', flush=True)
            print("complaint", file=sys.stderr)
            os.write(1, b'{"failed": {}}\\n')
        return super().forward(x)

def build(case):
    subprocess.run([sys.executable, "-c", "print('a child speaks')"], check=True)
    return Workload(module=Noisy(4, 4), args=(torch.ones(2, 4),))
"""


def job(suite: str | Path = TOYS, candidates: tuple[str, ...] = ("eager",), **settings: Any) -> Job:
    protocol = Protocol(**{"repeat": 2, "min_sample_s": 0.0, "threads": 1, **settings})
    return make_job("linear", suite=str(suite), mode=Mode.INFERENCE, candidates=candidates, protocol=protocol)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    """A new interpreter that is a worker."""
    start = PlainStart(command=worker_command(sys.executable))
    with WorkerProcess(start, worker_environment(threads=1), tmp_path / "output.log", silent) as process:
        yield process


def ask(worker: WorkerProcess, call: str, **arguments: Any) -> dict[str, Any]:
    return worker.call({"call": call, **arguments}, time.monotonic() + PATIENCE_S)


@pytest.mark.slow
def test_a_whole_conversation_with_a_model_that_prints(worker: WorkerProcess, tmp_path: Path) -> None:
    suite = tmp_path / "noisy.py"
    suite.write_text(NOISY, encoding="utf-8")
    reply = ask(worker, "open", job=to_json(job(suite)))["ok"]
    assert from_json(ModelFacts, reply["model"]).parameters == 20
    assert reply["environment"]["python"].startswith("3.")

    reply = ask(worker, "prepare", job=None, candidate="eager")["ok"]
    assert reply["status"] == "pass"
    assert from_json(Parity, reply["parity"]).failed == 0
    assert reply["metrics"]["compiled_region"] == "none"
    assert reply["notes"] == []
    assert len(reply["first_calls_s"]) == 3

    reply = ask(worker, "prepare", job=None, candidate="nonsense")
    assert reply["failed"]["status"] == "fail_to_run"
    assert from_json(Failure, reply["failed"]["failure"]).kind == "LookupError"

    reply = ask(worker, "warm_up", job=None, candidates=["eager"])["ok"]
    assert reply["metrics"]["iterations_per_sample"] == 1
    assert len(reply["first_calls_s"]["eager"]) == 3 + reply["metrics"]["warmup_rounds"]
    reply = ask(worker, "measure", job=None, rounds=3, within_s=60.0, candidates=["eager"])["ok"]
    rounds = [from_json(Round, entry) for entry in reply["rounds"]]
    assert [sorted(timed_round.order) for timed_round in rounds] == [[BASELINE, "eager"]] * 3
    assert reply["recompiled"] == {}
    assert worker.activity() == Activity(phase="measure", variant=BASELINE, rounds=3)

    reply = ask(worker, "measure", job=None, rounds=9, within_s=0.0, candidates=[])["ok"]
    assert [entry["order"] for entry in reply["rounds"]] == [[BASELINE]]  # no time for more
    metrics = ask(worker, "finish", job=None)["ok"]["metrics"]
    assert set(metrics) == {BASELINE}
    assert metrics[BASELINE]["peak_memory_bytes"] > 0

    assert ask(worker, "dance", job=None)["failed"]["failure"]["message"] == "there is no call 'dance'"
    os.write(worker._requests, b'{"call": "end"}\n')
    assert worker._process.wait(PATIENCE_S) == 0
    assert os.read(worker._replies, 1) == worker._buffer == b""  # it has said nothing unasked for
    printed = (tmp_path / "output.log").read_text(encoding="utf-8")
    for words in ("a lie", "a child speaks", "complaint", '{"ok": "printed"}', '{"failed": {}}'):
        assert words in printed


# -- the loop, in this process ---------------------------------------------------------------
def test_every_reply_is_one_line_of_strict_json() -> None:
    """NaN, line breaks and lone surrogates among them."""
    calls = [
        {"call": "open", "job": to_json(job())},
        {"call": "prepare", "candidate": "no\nsuch\udcff"},
        {"call": "prepare"},
    ]
    out = io.StringIO()
    serve(io.StringIO("".join(json.dumps(c) + "\n" for c in calls)), out, silent)
    lines = out.getvalue().splitlines()
    assert len(lines) == 3
    replies = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert "ok" in replies[0]
    replies[1]["failed"]["failure"]["message"].encode("utf-8")
    assert replies[2]["failed"]["failure"]["kind"] == "TypeError"


# -- one job by hand ------------------------------------------------------------------------------
def job_file(folder: Path, of: Job) -> Path:
    path = folder / "job.json"
    path.write_text(json.dumps(to_json(of)), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_job_file_is_replayed_by_hand(tmp_path: Path, capsys: Capture) -> None:
    """As a process: ``tests/cli/test_main_job.py``."""
    path = job_file(tmp_path, job(candidates=("eager", "aot_eager")))
    assert main(["--job", str(path)]) == 0
    printed = capsys.readouterr()
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert lines[0] == {"model": 32 * 64 + 64 + 64 * 8 + 8, "inputs": ["input.0.0: float32[8, 32]"]}
    statuses = [(line["candidate"], line["status"]) for line in lines[1:3]]
    assert statuses == [("eager", "pass"), ("aot_eager", "pass")]
    assert lines[3]["iterations_per_sample"] == 1
    assert len(lines) == 6
    for line in lines[4:]:
        assert sorted(line["order"]) == sorted(line["seconds"]) == ["aot_eager", BASELINE, "eager"]
    assert "# compile aot_eager" in printed.err.splitlines()


@pytest.mark.parametrize(
    ("of", "last"),
    [
        (job(candidates=("nonsense", "eager"), performance=False), {"candidate": "eager", "status": "pass"}),
        (job(Path("/no/such/suite.py")), {"status": "model_fail_to_load"}),
    ],
)
def test_a_replay_that_failed_says_so(tmp_path: Path, capsys: Capture, of: Job, last: dict[str, str]) -> None:
    assert main(["--job", str(job_file(tmp_path, of))]) == 1
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last.items() <= said.items()
