"""The forest plot: what is drawn, what is only said, and that rebuilding changes no byte."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.schema import Mode, Record, Status
from runner.analysis.derive import summarize
from runner.reports import speedup_plot
from runner.reports.parts.sections import sections
from tests.factories import known, make_job, make_record


def figures(records: Sequence[Record]) -> list[Any]:
    summary = summarize(records)
    return [speedup_plot.draw((section,), ("inductor",)) for section in sections(summary)]


def test_plots_are_one_picture_a_suite_and_dtype() -> None:
    jobs = [make_job(), make_job(mode=Mode.INFERENCE), make_job(dtype="amp"), make_job(suite="/x/more.py")]
    files = speedup_plot.render(summarize([make_record(job) for job in jobs]))
    names = ["more_float32", "toys_amp", "toys_float32"]
    assert sorted(files) == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]


def test_failures_are_words_at_the_margin_and_no_point() -> None:
    records = [
        make_record(make_job("good"), speedup=1.5),
        make_record(make_job("better"), speedup=1.5),
        make_record(make_job("wrong"), speedup=3.0, status=Status.FAIL_ACCURACY),
        make_record(make_job("dead"), status=Status.CRASH),
    ]
    (figure,) = figures(records)
    (axes,) = figure.axes
    words = [text.get_text() for text in axes.texts]
    assert "inductor: fail_accuracy" in words
    assert "inductor: crash" in words
    points = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert points == pytest.approx([1.5] * 3, rel=0.01)  # the models and the mean: not the wrong one
    assert [label.get_text().split("\n")[0] for label in axes.get_yticklabels()] == [
        "good",
        "better",
        "wrong",
        "dead",
        "geometric mean",
    ]
    assert axes.get_xscale() == "log"


def test_the_plots_title_says_under_which_conditions() -> None:
    (figure,) = figures([make_record(make_job())])
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "toys, training, float32, cpu"
    assert any("n = 20 rounds; torch 0.0.0+synthetic" in text.get_text() for text in axes.texts)


def test_one_model_is_one_point_with_the_batch_that_ran() -> None:
    """Its mean would be the same number again; the case of an own model does not say its batch."""
    record = make_record(make_job(batch_size=None, published_batch_size=None), speedup=1.5)
    told = replace(record, model=replace(known(record.model), batch_size=2))
    untold = replace(record, status=Status.MODEL_FAIL_TO_LOAD, model=None)
    other = make_record(make_job("other"), status=Status.CRASH)
    drawn = [figures([one, other])[0].axes[0] for one in (told, untold)]
    ticks = [[label.get_text() for label in axes.get_yticklabels()] for axes in drawn]
    assert ticks == [["model\nbatch 2", "other\nbatch 8"], ["model", "other\nbatch 8"]]
