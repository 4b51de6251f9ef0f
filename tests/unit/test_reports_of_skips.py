"""A candidate that was only skipped is in no average, and breaks no report."""

import pytest

from harness.schema import Status
from runner.analysis.derive import summarize
from runner.reports import discover
from runner.reports.parts.averages import averages_tables
from tests.factories import control, make_job, make_record

JOB = make_job()
SUMMARY = summarize(
    [
        control(JOB),
        make_record(JOB, candidate="onnxrt", status=Status.SKIP),
        make_record(JOB, candidate="inductor", speedup=1.5),
    ]
)


@pytest.mark.parametrize("report", discover(), ids=lambda module: module.__name__.rsplit(".", 1)[-1])
def test_every_report_is_made(report: object) -> None:
    render = getattr(report, "render", None)
    if render is not None:
        assert all(isinstance(content, bytes) for content in render(SUMMARY).values())


def test_averages_have_no_row_of_it() -> None:
    other = make_job("other", candidates=JOB.candidates)
    records = [make_record(job, name) for job in (JOB, other) for name in ("eager", "inductor")]
    skipped = [make_record(job, "onnxrt", status=Status.SKIP) for job in (JOB, other)]
    (table,) = averages_tables(summarize([*records, *skipped]))
    assert [row[0] for row in table.rows] == ["eager (A/A)", "inductor"]
