"""What a model can write where its worker writes: it costs the candidate, never the run."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.schema import BASELINE, Job, Record, Status
from runner.engine import JobContext, Place, launch, worker_process
from runner.engine.replies import INVALID, LONGEST_LINE
from runner.engine.worker_process import CUT, KEPT, LONGEST_LOG, WorkerLost, shorten, was_shortened
from tests.factories import known, make_job, make_record
from tests.unit.test_execute import Script, run
from tests.unit.test_worker_process import FOR_EVER_S, soon, start

# -- the pipe -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrote", "why"),
    [
        ("'[' * 200_000", "not JSON"),
        ("""'{"ok": NaN}'""", "the number NaN"),
        ("""'{"ok": -Infinity}'""", "the number -Infinity"),
        ("""'{"ok": ' + '9' * 4000 + '}'""", "4000 digits"),
        ("""'{"ok": ' + '9' * 20_000 + '}'""", ""),
        ("'{}'", "not a reply"),
        ("'3'", "not a reply"),
        ("'\\0\\udcff'", ""),
        (f"'x' * {LONGEST_LINE + (1 << 20)}", "longer than 16 MiB"),
    ],
)
def test_what_is_no_reply_costs_the_worker(tmp_path: Path, wrote: str, why: str) -> None:
    body = f"incoming.readline(); outgoing.reconfigure(errors='surrogateescape'); reply({wrote})"
    with start(tmp_path, f"{body}; time.sleep({FOR_EVER_S})") as worker:
        with pytest.raises(WorkerLost) as caught:
            worker.call({"call": "x"}, soon())
        assert worker._process.poll() is not None
    assert (caught.value.status, caught.value.failure.kind) == (Status.CRASH, INVALID)
    assert why in caught.value.failure.message


PREPARED: dict[str, Any] = {"status": "pass", "parity": None, "notes": []}
BOTH = {"a": 1.0, BASELINE: 1.0}


def measured_as(**changes: Any) -> Any:
    timed = {"order": [*BOTH], "seconds": BOTH, "minor_faults": BOTH, **changes}
    return {"ok": {"rounds": [timed], "recompiled": {}}}


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        ("open", {"ok": [1]}),
        ("open", {"ok": {"model": 3, "environment": {}}}),
        ("prepare a", {"ok": {}}),
        ("prepare a", {"ok": {**PREPARED, "status": 3}}),
        ("prepare a", {"ok": {**PREPARED, "metrics": {"x": [1]}}}),
        ("prepare a", {"ok": {**PREPARED, "notes": [3]}}),
        ("prepare a", {"failed": 7}),
        ("prepare a", {"failed": {"status": "splendid", "failure": {}}}),
        ("warm_up", {"ok": {"metrics": 1}}),
        ("measure", {"ok": {"rounds": 3, "recompiled": {}}}),
        ("measure", {"ok": {"rounds": [{}], "recompiled": {}}}),
        ("measure", measured_as(seconds={"a": "nan", BASELINE: 1.0})),
        ("measure", measured_as(seconds={"a": 0.0, BASELINE: 1.0})),
        ("measure", measured_as(order=["z"])),
        ("measure", {"ok": {"rounds": [], "recompiled": [0]}}),
    ],
)
def test_a_reply_of_another_shape_costs_one_candidate(call: str, reply: Any) -> None:
    name, _, candidate = call.partition(" ")
    records = {record.candidate: record for record in run(Script({(1, name, candidate): reply}), ("a",))}
    (record,) = records.values()
    assert record.status is Status.CRASH
    assert record.failure is not None
    assert record.failure.kind == INVALID
    assert "cannot be used" in record.failure.message


# -- the runner itself ------------------------------------------------------------------


def measured(
    monkeypatch: pytest.MonkeyPatch, folder: Path, records: Callable[[Job], Iterator[Record]]
) -> list[Record]:
    monkeypatch.setattr(launch, "with_fresh_runs", lambda job, *_: records(job))
    log = folder / "cases" / "x" / "output.log"
    job = make_job(candidates=("a", "b", "c"))
    place = Place(logs={"": "cases/x/output.log"})
    context = JobContext(candidates=job.candidates, place=place, reproduce=lambda *_: "again")
    return [*launch.measure_job(job, context, log)]


def test_an_exception_of_this_program_is_the_record_of_its_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(job: Job) -> Iterator[Record]:
        yield make_record(job, "a")
        raise ZeroDivisionError("no\nwords")

    records = measured(monkeypatch, tmp_path, fails)
    assert [record.status for record in records] == [Status.PASS, *[Status.INFRA_ERROR] * 2]
    failure = known(records[2].failure)
    assert failure.message.isprintable()
    assert "ZeroDivisionError" in (tmp_path / str(failure.log)).read_text()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_what_ends_the_run_is_no_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException
) -> None:
    def ends(job: Job) -> Iterator[Record]:
        yield make_record(job, "a")
        raise error

    with pytest.raises(type(error)):
        measured(monkeypatch, tmp_path, ends)


# -- the log ----------------------------------------------------------------------------


def test_of_a_long_log_both_ends_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    with log.open("wb") as file:
        file.write(b"# by hand: x\n")
        file.seek(LONGEST_LOG)
        file.write(b"the last words")
    with log.open("ab", buffering=0) as worker:  # which appends meanwhile
        assert not was_shortened(log)
        shorten(log)
        worker.write(b", and more")
    assert log.stat().st_size == 2 * KEPT + len(CUT + b", and more")
    assert log.read_bytes().startswith(b"# by hand: x\n")
    assert log.read_bytes().endswith(b"the last words, and more")
    assert was_shortened(log)
    monkeypatch.setattr(launch, "was_shortened", lambda _: True)
    (record, *_) = measured(monkeypatch, tmp_path, lambda job: iter([make_record(job, "a")]))
    assert record.notes[-1] == launch.LONG_LOG


def test_a_log_is_cut_while_the_worker_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(worker_process, "LONGEST_LOG", 3 * KEPT)
    body = "incoming.readline(); [print('x' * 99_999) for _ in range(60)]; reply('{\"ok\": 1}')"
    with start(tmp_path, body) as worker:
        worker.call({"call": "x"}, soon())
    assert (tmp_path / "output.log").stat().st_size <= 3 * KEPT
