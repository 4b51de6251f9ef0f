"""The forest plot: what is drawn, what is only said, and that rebuilding changes no byte."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.schema import Mode, Record, Scalar, Status
from runner.analysis.comparison import OPERATION
from runner.analysis.derive import summarize
from runner.reports import roofline, speedup_plot
from runner.reports.parts.sections import Section, sections
from tests.factories import known, make_job, make_record, printed


def figures(records: Sequence[Record]) -> list[Any]:
    summary = summarize(records)
    return [speedup_plot.draw((section,), ("inductor",)) for section in sections(summary)]


@pytest.mark.slow
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
    labels = [label.get_text().split("\n")[0] for label in axes.get_yticklabels()]
    assert labels == ["good", "better", "wrong", "dead", "geometric mean"]
    assert axes.get_xscale() == "log"


def test_one_model_is_one_point_with_the_batch_that_ran() -> None:
    """Its mean would be the same number again; the case of an own model does not say its batch."""
    record = make_record(make_job(batch_size=None, published_batch_size=None), speedup=1.5)
    told = replace(record, model=replace(known(record.model), batch_size=2))
    untold = replace(record, status=Status.MODEL_FAIL_TO_LOAD, model=None)
    other = make_record(make_job("other"), status=Status.CRASH)
    drawn = [figures([record, other])[0].axes[0] for record in (told, untold)]
    ticks = [[label.get_text() for label in axes.get_yticklabels()] for axes in drawn]
    assert ticks == [["model\nbatch 2", "other\nbatch 8"], ["model", "other\nbatch 8"]]


# -- the roofline of single operations ---------------------------------------------------------
PEAKS: dict[str, Scalar] = {"measured_peak_flop_per_s": 1e11, "measured_bandwidth_bytes_per_s": 1e10}
PRODUCT: dict[str, Scalar] = {**PEAKS, "flops_per_step": 800_000_000, "bytes_per_step": 16_000_000}
SUM: dict[str, Scalar] = {**PEAKS, "flops_per_step": None, "bytes_per_step": 64_000_000}
VIEW: dict[str, Scalar] = {**PEAKS, "flops_per_step": None, "bytes_per_step": 0}


def operation(name: str, metrics: dict[str, Scalar], **changes: object) -> Record:
    job = make_job(name, tags=(OPERATION,), candidates=("inductor",))
    return make_record(job, metrics=metrics, **{"speedup": 2.0, "jitter": 0.001, **changes})  # type: ignore[arg-type]


def section_of(*records: Record) -> Section:
    (section,) = sections(summarize(records))
    return section


def test_points_are_work_over_the_median_step() -> None:
    record = operation("product", PRODUCT)
    section = section_of(record)
    (point,) = roofline.operations(section)
    middle = sorted(known(record.samples).baseline_s)
    step_s = (middle[9] + middle[10]) / 2
    assert point.flop_per_byte == 50
    assert point.flops[""] == pytest.approx(8e8 / step_s / 1e12)
    assert point.bytes[""] == pytest.approx(1.6e7 / step_s / 1e9)
    assert point.flops["inductor"] == pytest.approx(2 * point.flops[""], rel=0.01)
    assert roofline.highest(section, "measured_peak_tflop_per_s") == 0.1
    assert roofline.highest(section, "measured_bandwidth_gb_per_s") == 10.0


def test_what_has_no_flops_is_drawn_by_its_bytes_and_a_view_not_at_all() -> None:
    section = section_of(operation("sum", SUM), operation("view", VIEW), operation("product", PRODUCT))
    drawn = roofline.operations(section)
    assert [point.name for point in drawn] == ["sum", "product"]
    assert drawn[0].flops == {}
    assert set(drawn[0].bytes) == {"", "inductor"}


def test_a_candidate_that_failed_parity_has_no_point() -> None:
    section = section_of(operation("product", PRODUCT, status=Status.FAIL_ACCURACY))
    assert set(roofline.operations(section)[0].flops) == {""}


def test_models_have_no_roofline_here_and_what_was_not_timed_neither() -> None:
    model = make_record(make_job("model"), metrics=PRODUCT)
    assert roofline.render(summarize([model])) == {}
    assert roofline.render(summarize([operation("product", PRODUCT, status=Status.CRASH)])) == {}
    assert roofline.render(summarize([operation("view", VIEW)])) == {}


def test_files_are_the_same_bytes_every_time_and_name_every_operation() -> None:
    summary = summarize([operation("product", PRODUCT), operation("sum $x_1$", SUM)])
    files = roofline.render(summary)
    assert set(files) == {"toys_float32_roofline.png", "toys_float32_roofline.svg"}
    assert files == roofline.render(summary)
    text = files["toys_float32_roofline.svg"].decode()
    assert "sum $x_1$" in text
    assert "peak measured here: 0.100 TFLOP/s" in text
    assert files["toys_float32_roofline.png"].startswith(b"\x89PNG")


# -- tables --------------------------------------------------------------------------
def test_the_rates_of_an_operation_are_columns_and_those_of_a_model_are_not() -> None:
    wide = printed([operation("product", PRODUCT)], 260)
    for word in ("TFLOP/s", "GB/s", "MFU", "roof"):
        assert word in wide
        assert word not in printed([make_record(make_job("model"), metrics=PRODUCT)], 260)
