"""Reports, held against golden files and against what must never happen in any of them.

``UPDATE_GOLDEN=1 pytest tests/unit/test_reports.py`` writes the golden files
anew; read the difference before keeping it.
"""

import csv
import io
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from harness.schema import Protocol, Record, Scalar, Status
from runner import reports
from runner.analysis.derive import summarize
from runner.analysis.results import OPERATION
from runner.reports import field_csv, formats, lines_plot, markdown, render_all, roofline, speedup_plot
from runner.reports.parts.averages import fast_lines
from runner.reports.parts.sections import Section, sections
from tests.factories import Capture, Patch, accuracy_run, known, make_job, make_record, printed, synthetic_run

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
TEXTS = {*reports.formats()} - {"png", "svg", "html", "json", "hud", "junit", "bencher"}
"""The others are pictures, all digits and a library (test_html_report.py), or in test_adapters.py."""
RUNS = {"synthetic": synthetic_run, "accuracy": accuracy_run}


def table(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


# -- golden files ----------------------------------------------------------------
def texts(name: str) -> dict[str, str]:
    """Every text that a run ends in, by file name; lines without the spaces that pad a table."""
    records = RUNS[name]()
    by_file = {file: content.decode() for file, content in render_all(summarize(records), TEXTS).items()}
    for width in (80, 200):
        lines = printed(records, width).splitlines()
        by_file[f"console_{width}.txt"] = "\n".join(line.rstrip() for line in lines) + "\n"
    return by_file


@pytest.mark.parametrize("name", RUNS)
def test_texts_are_the_golden_ones(name: str) -> None:
    folder = GOLDEN / name
    by_file = texts(name)
    if os.environ.get("UPDATE_GOLDEN"):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for file, text in by_file.items():
            (folder / file).write_bytes(text.encode())
    golden = {path.name: path.read_bytes().decode() for path in folder.iterdir()}
    assert sorted(by_file) == sorted(golden)
    for file, text in golden.items():
        assert by_file[file] == text, file


# -- all reports -----------------------------------------------------------------
def test_a_report_that_fails_costs_no_other(monkeypatch: Patch, capsys: Capture) -> None:
    def fail(summary: object) -> Mapping[str, bytes]:
        raise OSError("no fonts")

    monkeypatch.setattr(speedup_plot, "render", fail)
    files = render_all(summarize(accuracy_run()))
    assert "report.md" in files
    assert capsys.readouterr().err == "error: report speedup_plot was not made: OSError: no fonts\n"


def test_two_reports_cannot_write_the_same_file(monkeypatch: Patch) -> None:
    module = ModuleType("twin")
    monkeypatch.setattr(module, "render", markdown.render, raising=False)
    monkeypatch.setattr(reports, "discover", lambda: (markdown, module))
    with pytest.raises(ValueError, match=r"both write \['report.md'\]"):
        render_all(summarize(accuracy_run()))


# -- the field's CSV files -------------------------------------------------------
def test_without_parity_there_is_no_file_of_it() -> None:
    files = field_csv.render(summarize([make_record(make_job(protocol=Protocol(accuracy=False)))]))
    assert [*files] == ["inductor_toys_float32_training_cpu_performance.csv"]


# -- fast_p ----------------------------------------------------------------------
def test_fast_p_counts_what_failed_and_what_is_wrong_in_its_denominator() -> None:
    speedups = {"slow": 0.9, "fast": 1.3, "faster": 2.5}
    measured = [make_record(make_job(name), speedup=speedup) for name, speedup in speedups.items()]
    measured += [make_record(make_job("wrong"), speedup=9.0, status=Status.FAIL_ACCURACY)]
    measured += [make_record(make_job("lost"), status=Status.CRASH)]
    summary = summarize([*measured, *(make_record(make_job(name), "eager") for name in speedups)])
    told = "toys, training, float32, cpu, inductor, fast_p of 5 (right and at least p times as fast as eager)"
    assert [*fast_lines(summary)] == [f"{told}: p = 1: 40%, 1.2: 40%, 1.5: 20%, 2: 20%"]
    ((name, strip),) = lines_plot.shares(summary)
    ((label, _, points),) = strip.panels[0].lines
    assert (name, label) == ("toys_float32_fast_p.png", "inductor, n = 5")
    assert [share.factor for _, share in points] == pytest.approx([0.6, 0.6, 0.4, 0.4, 0.2, 0.0])
    assert name in render_all(summary, {"png"})


# -- report.md -------------------------------------------------------------------
def test_names_never_become_markup() -> None:
    text = markdown.render(summarize(synthetic_run()))["report.md"].decode()
    assert "<script" not in text.split("```")[0]
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    html = [token.content for token in tokens if token.type == "html_block"]
    html += [c.content for token in tokens for c in token.children or () if c.type == "html_inline"]
    allowed = ("<details>", "</details>", "<summary>")
    assert html
    assert not [token for token in tokens if token.type.startswith(("link", "blockquote"))]
    assert all(block.startswith(allowed) for block in html)
    shown = {token.content for token in tokens if token.type == "inline"}
    shown |= {"".join(c.content for c in token.children or ()) for token in tokens if token.type == "inline"}
    assert {"<script>alert(1)</script>", "pipe|tick`bracket[0]*star*"} <= shown


@given(st.text(alphabet="ab_*`[]()<>|&#;!~\\$@:/ -^1", max_size=30))
def test_any_text_is_shown_as_it_is(text: str) -> None:
    source = f"| head |\n| --- |\n| x{markdown.escape(text)}x |\n"
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(source)
    (_, cell) = [token for token in tokens if token.type == "inline"]
    assert {child.type for child in cell.children or ()} == {"text"}
    assert "".join(child.content for child in cell.children or ()) == f"x{text}x"


def test_a_command_cannot_close_its_code_block() -> None:
    job = make_job("```\n<script>")
    text = markdown.render(summarize([make_record(job)]))["report.md"].decode()
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    (fence,) = [token for token in tokens if token.type == "fence"]
    assert fence.markup == "````"
    assert "<script>" in fence.content


# -- --format: which files are made, from which words ------------------------------------------
def test_every_ending_is_a_word_and_every_report_says_its_own() -> None:
    assert {"csv", "html", "hud", "json", "md", "png", "svg"} <= {*formats()}
    for module in reports.discover():
        assert module.FORMATS, module.__name__


def test_a_report_without_a_word_answers_to_its_name(monkeypatch: Patch) -> None:
    module = ModuleType("runner.reports.badge")
    monkeypatch.setattr(module, "render", lambda summary: {"badge.svg": b""}, raising=False)
    monkeypatch.setattr(reports, "discover", lambda: (module,))
    summary = summarize(accuracy_run())
    assert (set(render_all(summary, {"badge"})), render_all(summary, {"svg"})) == ({"badge.svg"}, {})


# -- report.md within GitHub's limit ----------------------------------------------
@pytest.mark.slow
def test_a_long_report_fits_into_a_comment_and_says_what_is_missing() -> None:
    records = [
        make_record(
            make_job(f"a_model_<b>with</b>_a|long_name_{number}"),
            speedup=0.5 if number % 2 else 1.5,
            status=Status.CRASH if number % 10 == 0 else Status.PASS,
            rounds=6,
        )
        for number in range(500)
    ]
    text = markdown.render(summarize(records))["report.md"].decode()
    assert 60_000 < len(text.encode()) <= 65_536
    assert "rows omitted, to keep this short: report.html and summary.json have all of them.)" in text
    assert text.count("<details>") == text.count("</details>") > 1
    assert text.count("```") % 2 == 0
    outside = "".join(text.split("```")[::2])
    assert "<b>" not in outside  # what is cut is as harmless as the rest
    table = [line for line in outside.splitlines() if line.startswith("| a\\_model")]
    assert len({line.replace("\\|", "").count("|") for line in table}) <= 1


# -- the forest plot and the roofline ----------------------------------------------------------
def axes_of(*records: Record) -> Any:
    return speedup_plot.draw((section_of(*records),), ("inductor",)).axes[0]


def test_failures_are_words_at_the_margin_and_no_point() -> None:
    good, better = (make_record(make_job(name), speedup=1.5) for name in ("good", "better"))
    wrong = make_record(make_job("wrong"), speedup=3.0, status=Status.FAIL_ACCURACY)
    axes = axes_of(good, better, wrong, make_record(make_job("dead"), status=Status.CRASH))
    assert {"inductor: fail_accuracy", "inductor: crash"} <= {text.get_text() for text in axes.texts}
    points = [x for line in axes.lines if line.get_marker() == "o" for x in line.get_xdata()]
    assert points == pytest.approx([1.5] * 3, rel=0.01)  # the models and the mean: not the wrong one
    labels = [label.get_text().split("\n")[0] for label in axes.get_yticklabels()]
    assert (labels, axes.get_xscale()) == (["good", "better", "wrong", "dead", "geometric mean"], "log")


def test_one_model_is_one_point_with_the_batch_that_ran() -> None:
    """Its mean would be the same number again; the case of an own model does not say its batch."""
    record = make_record(make_job(batch_size=None, published_batch_size=None), speedup=1.5)
    told = replace(record, model=replace(known(record.model), batch_size=2))
    untold = replace(record, status=Status.MODEL_FAIL_TO_LOAD, model=None)
    other = make_record(make_job("other"), status=Status.CRASH)
    drawn = [axes_of(record, other).get_yticklabels() for record in (told, untold)]
    ticks = [[label.get_text() for label in labels] for labels in drawn]
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


@pytest.mark.slow
def test_files_are_the_same_bytes_every_time_and_name_every_operation() -> None:
    summary = summarize([operation("product", PRODUCT), operation("sum $x_1$", SUM)])
    files = roofline.render(summary)
    assert set(files) == {"toys_float32_roofline.png", "toys_float32_roofline.svg"}
    with mpl.rc_context({"font.size": 20, "axes.grid": False, "svg.fonttype": "path"}):  # as a matplotlibrc
        assert files == roofline.render(summary)
    for text in (b"sum $x_1$", b"peak measured here: 0.100 TFLOP/s"):
        assert text in files["toys_float32_roofline.svg"]
    assert files["toys_float32_roofline.png"].startswith(b"\x89PNG")


# -- tables --------------------------------------------------------------------------
def test_the_rates_of_an_operation_are_columns_and_those_of_a_model_are_not() -> None:
    wide = printed([operation("product", PRODUCT)], 260)
    for word in ("TFLOP/s", "GB/s", "MFU", "roof"):
        assert word in wide
        assert word not in printed([make_record(make_job("model"), metrics=PRODUCT)], 260)
