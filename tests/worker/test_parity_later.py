"""A later process of a job checks less (``--processes``), and a fault that comes only there is found."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.parity.checks import Checks
from harness.schema import Mode, Parity, Status
from harness.worker.session import Session
from tests.factories import Patch, known, sampled
from tests.worker.planted import (
    MODELS,
    Fault,
    changing,
    every,
    go_on,
    opened,
    refusing,
    right,
    with_fault,
    workload,
)

JUDGED = [name for name in MODELS if name != "norm_mean"]  # whose gradients cannot be judged

In = Callable[..., tuple[Session, Status, Parity]]


@pytest.fixture
def process(tmp_path: Path) -> In:
    """One process of a job: a session that has checked a candidate with this fault."""

    def run(number: int, fault: Fault = right, name: str = "mlp", dtype: str = "float32", **more: Any) -> Any:
        compilers = {"planted": with_fault(fault)}
        protocol = {"processes": 3, "process": number, "repeat": 3, **more}
        mode = protocol.pop("mode", Mode.TRAINING)
        session = opened(partial(workload, name), mode, dtype, compilers, **protocol)
        status, parity, *_ = session.prepare("planted", tmp_path / "parity-planted.csv")
        return session, status, known(parity)

    return run


def is_whole(parity: Parity) -> bool:
    return parity.reference == "fp64" and not any("an earlier process" in why for why in parity.not_checked)


@pytest.mark.parametrize(("name", "dtype"), sampled(4, JUDGED, ("float32", "bfloat16", "amp")))
@pytest.mark.series
def test_a_right_candidate_is_checked_in_full_once(
    monkeypatch: Patch, process: In, name: str, dtype: str
) -> None:
    _, whole, parity = process(0, name=name, dtype=dtype)
    monkeypatch.setattr(Checks, "_open", refusing(AssertionError("in full again")))
    session, status, again = process(1, name=name, dtype=dtype)
    assert (status, is_whole(parity), is_whole(again)) == (whole, True, False)
    assert "results have the same bits" in again.not_checked[-1]
    assert known(again.resolution_outputs) <= known(parity.resolution_outputs)
    assert (again.failed, again.other_data) == (0, ())
    go_on(session)
    assert session.finish()[0] == {}


@pytest.mark.parametrize(("name", "dtype"), sampled(4, JUDGED, ("float32", "bfloat16", "amp")))
@pytest.mark.parametrize("fault", [changing(lambda output: output * 1.2), changing(loss=1.2)])
@pytest.mark.series
def test_a_fault_of_a_later_process_alone_is_found(process: In, fault: Fault, name: str, dtype: str) -> None:
    assert process(0, name=name, dtype=dtype)[1] is Status.PASS
    _, status, parity = process(1, fault, name, dtype)
    assert (status, is_whole(parity)) == (Status.FAIL_ACCURACY, True)
    _, status, parity = process(2, name=name, dtype=dtype)  # after a failure nothing is handed over
    assert (status, is_whole(parity)) == (Status.PASS, True)


def test_other_roundings_are_judged_by_the_limits_of_the_first_process(process: In) -> None:
    process(0)
    _, status, parity = process(1, changing(loss=1 + 2.5e-7))  # last digits of loss and gradients
    assert (status, is_whole(parity)) == (Status.PASS, False)
    assert "the others use up to" in parity.not_checked[-1]
    _, status, parity = process(1, changing(loss=1 + 3e-3))
    assert (status, is_whole(parity)) == (Status.FAIL_ACCURACY, True)


def test_each_candidate_has_its_own_first_process(tmp_path: Path) -> None:
    compilers = {
        "right": with_fault(right),
        "wrong": with_fault(changing(loss=1.5)),
        "again": with_fault(right),
    }
    for number in (0, 1):
        session = opened(partial(workload, "mlp"), compilers=compilers, processes=2, process=number)
        verdicts = [
            session.prepare(name, tmp_path / f"{name}.csv")[:2] for name in ("right", "again", "wrong")
        ]
        assert [status for status, _ in verdicts] == [Status.PASS, Status.PASS, Status.FAIL_ACCURACY]
        assert [is_whole(known(parity)) for _, parity in verdicts] == [not number, not number, True]


def test_a_fault_in_a_late_call_of_a_later_process_is_found(process: In) -> None:
    process(0)
    session, status, parity = process(1, every(7, first=8, factor=1.1))
    assert (status, is_whole(parity)) == (Status.PASS, False)
    go_on(session, rounds=14)
    assert set(session.finish()[0]) == {"planted"}


@pytest.mark.parametrize(
    "kept", [None, "", "{}", "[]", '{"sizes": {"loss": [2, 2, 1]}, "draws": {"loss": []}, "digests": []}']
)
def test_without_the_first_process_a_later_one_checks_in_full(
    process: In, tmp_path: Path, kept: str | None
) -> None:
    """There is no file on another machine, and one may be damaged or another model's."""
    if kept is not None:
        (tmp_path / "parity-planted.json").write_text(kept)
    _, status, parity = process(1)
    assert (status, is_whole(parity)) == (Status.PASS, True)
    assert not is_whole(process(2)[2])


@pytest.mark.parametrize("alone", [{"processes": 1}, {"performance": False}, {"parity": "field"}])
def test_a_job_of_one_process_hands_nothing_over(process: In, tmp_path: Path, alone: dict[str, Any]) -> None:
    process(0, **alone)
    assert not [*tmp_path.glob("*.json")]
