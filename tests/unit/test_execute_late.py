"""What a job makes of candidates that turned wrong during the timed rounds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.codec import to_json
from harness.schema import BASELINE
from tests.factories import known, make_parity
from tests.unit.test_execute import Reply, Script, run


class Late(Script):
    """Some variants do not compute any more what they did when they were checked."""

    def __init__(self, *changed: str) -> None:
        super().__init__()
        self.changed = changed

    def _prepare(self, request: Mapping[str, Any]) -> Reply:
        parity = replace(make_parity(), worst=None)
        status = "fail_accuracy" if request["candidate"] == "c" else "pass"
        return {**super()._prepare(request), "status": status, "parity": to_json(parity)}

    def _finish(self, request: Mapping[str, Any]) -> Reply:
        zeros = dict.fromkeys(
            ("eager_rmse", "candidate_rmse", "allowed", "candidate_max", "allowed_max"), 0.0
        )
        error = {"name": "loss", "numel": 1, "scale": 1.0, **zeros, "failure": "it differs"}
        return {**super()._finish(request), "changed": dict.fromkeys(self.changed, error)}


def test_a_candidate_that_turned_wrong_during_the_rounds_does_not_pass() -> None:
    records = {record.candidate: record for record in run(Late("a", "c"))}
    assert {name: r.status.value for name, r in records.items()} == {
        "a": "fail_accuracy",
        "b": "pass",
        "c": "fail_accuracy",
    }
    parity = known(records["a"].parity)
    assert (parity.failed, known(parity.worst).failure) == (1, "it differs")
    assert records["a"].notes[-1] == "a: results changed during the run: loss: it differs"
    assert records["a"].samples is not None  # it was timed all the same
    assert records["c"].notes == ("n",)  # it had failed before


def test_where_eager_changed_nobody_passes() -> None:
    records = {record.candidate: record for record in run(Late(BASELINE))}
    assert [records[name].status.value for name in "abc"] == [
        "eager_two_runs_differ",
        "eager_two_runs_differ",
        "fail_accuracy",
    ]
    assert records["a"].notes[-1] == "eager: results changed during the run: loss: it differs"


def test_a_candidate_whose_last_step_fails_has_failed() -> None:
    class Failing(Late):
        def _finish(self, request: Mapping[str, Any]) -> Reply:
            failure = {"kind": "RuntimeError", "message": "late", "phase": "finish", "log": None}
            return {**super()._finish(request), "late_failures": {"a": failure, "c": failure}}

    records = {record.candidate: record for record in run(Failing())}
    assert [records[name].status.value for name in "abc"] == ["fail_to_run", "pass", "fail_accuracy"]
    failure = known(records["a"].failure)
    assert (failure.phase, failure.message) == ("finish", "late")
    assert records["a"].samples is not None
    assert records["c"].failure is None  # it had failed before
