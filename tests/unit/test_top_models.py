"""What a very large run shows where there is no room for all of it."""

from harness.schema import Status
from runner.analysis.derive import summarize
from runner.reports.parts.sections import Section, sections, top_models
from tests.factories import make_job, make_record, printed


def section(*speedups: float) -> Section:
    records = [
        make_record(make_job(f"model_{place}"), candidate, speedup=speedup)
        for place, speedup in enumerate(speedups)
        for candidate in ("inductor", "torchscript")
    ]
    return sections(summarize(records))[0]


def names(part: Section) -> list[str]:
    return [c.record.job.case.name for c in part.comparisons]


def test_of_more_the_furthest_from_1_are_kept_whole_and_in_plan_order() -> None:
    kept, said = top_models(section(1.0, 0.4, 1.1, 2.0, 0.9), most=4, otherwise=2)
    assert names(kept) == ["model_1", "model_1", "model_3", "model_3"]
    assert said.startswith("2 of 5 models, with the speedups furthest from 1;")


def test_what_counts_for_nothing_is_not_far_from_1() -> None:
    wrong = make_record(make_job("wrong"), status=Status.FAIL_ACCURACY, speedup=9.0)
    part = sections(summarize([wrong, make_record(make_job("right"), speedup=1.2)]))[0]
    assert names(top_models(part, most=1, otherwise=1)[0]) == ["right"]


def test_the_console_says_what_it_leaves_out() -> None:
    records = [make_record(make_job(f"model_{i}"), speedup=1 + i / 1000, rounds=6) for i in range(201)]
    text = printed(records, 100)
    assert (
        "50 of 201 models, with the speedups furthest from 1; report.html and the CSV files have all models."
        in text
    )
    assert sum(line.startswith("model_") for line in text.splitlines()) == 50
    assert "passed: inductor 201/201" in text
