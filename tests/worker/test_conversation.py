"""The worker's loop, in this process: calls and replies, and one job run by hand.

Models that print: ``tests/zoo``.
"""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from harness.codec import from_json, to_json
from harness.schema import BASELINE, Job, Mode, ModelFacts, Parity, Protocol, Round
from harness.worker.main import main, serve
from tests.cli.command import TOYS
from tests.factories import Capture, make_job
from tests.worker.planted import silent


def job(suite: str | Path = TOYS, candidates: tuple[str, ...] = ("eager",), **settings: Any) -> Job:
    protocol = Protocol(**{"repeat": 2, "min_sample_s": 0.0, "threads": 1, **settings})
    return make_job("linear", suite=str(suite), mode=Mode.INFERENCE, candidates=candidates, protocol=protocol)


def test_every_reply_is_one_line_of_strict_json() -> None:
    """NaN, line breaks and lone surrogates among them."""
    requests: tuple[tuple[str, dict[str, Any]], ...] = (
        ("open", {"job": to_json(job())}),
        ("prepare", {"candidate": "eager"}),
        ("prepare", {"candidate": "no\nsuch\udcff"}),
        ("prepare", {}),
        ("warm_up", {"candidates": ["eager"]}),
        ("measure", {"rounds": 3, "within_s": 60.0, "candidates": ["eager"]}),
        ("measure", {"rounds": 9, "within_s": 0.0, "candidates": []}),
        ("finish", {}),
        ("dance", {}),
    )
    out, calls = io.StringIO(), ({"call": call, "job": None, **more} for call, more in requests)
    serve(io.StringIO("".join(json.dumps(call) + "\n" for call in calls)), out, silent)
    replies = [json.loads(line, parse_constant=pytest.fail) for line in out.getvalue().splitlines()]
    ok = [reply.get("ok", {}) for reply in replies]
    failures = {place: reply["failed"]["failure"] for place, reply in enumerate(replies) if "failed" in reply}
    kinds = {place: failure["kind"] for place, failure in failures.items()}
    assert kinds == {2: "LookupError", 3: "TypeError", 8: "ValueError"}
    failures[2]["message"].encode("utf-8")
    assert failures[8]["message"] == "there is no call 'dance'"
    assert from_json(ModelFacts, ok[0]["model"]).parameters == 32 * 64 + 64 + 64 * 8 + 8
    assert (ok[1]["status"], from_json(Parity, ok[1]["parity"]).failed, ok[1]["notes"]) == ("pass", 0, [])
    first_calls = [len(ok[1]["first_calls_s"]), len(ok[4]["first_calls_s"]["eager"])]
    assert first_calls == [3, 3 + ok[4]["metrics"]["warmup_rounds"]]
    rounds = [from_json(Round, entry) for entry in ok[5]["rounds"]]
    assert [sorted(timed_round.order) for timed_round in rounds] == [[BASELINE, "eager"]] * 3
    assert [entry["order"] for entry in ok[6]["rounds"]] == [[BASELINE]]  # no time for more
    assert ok[7]["metrics"][BASELINE]["peak_memory_bytes"] > 0


@pytest.mark.parametrize(
    ("of", "last"),
    [
        (job(candidates=("nonsense", "eager"), performance=False), {"candidate": "eager", "status": "pass"}),
        (job(Path("/no/such/suite.py")), {"status": "model_fail_to_load"}),
    ],
)
def test_a_replay_that_failed_says_so(tmp_path: Path, capsys: Capture, of: Job, last: dict[str, str]) -> None:
    """One that passes: ``tests/cli/test_main_job.py``."""
    path = tmp_path / "job.json"
    path.write_text(json.dumps(to_json(of)), encoding="utf-8")
    assert main(["--job", str(path)]) == 1
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last.items() <= said.items()
