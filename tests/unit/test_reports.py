"""Reports, held against golden files and against what must never happen in any of them.

``UPDATE_GOLDEN=1 pytest tests/unit/test_reports.py`` writes the golden files
anew; read the difference before keeping it.
"""

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from harness.schema import Mode, Protocol, Status
from runner import reports
from runner.analysis.columns import OF_PYTORCH, columns
from runner.analysis.derive import summarize
from runner.reports import discover, field_csv, markdown, render_all, speedup_plot
from tests.factories import HOSTILE_NAMES, accuracy_run, known, make_job, make_record, printed, synthetic_run

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
NOT_GOLDEN = (
    ".png",
    ".svg",
    "report.html",
    "summary.json",
)  # the last two: all digits and a library, test_html_report.py
RUNS = {"synthetic": synthetic_run, "accuracy": accuracy_run}
PERFORMANCE_COLUMNS = [
    *["dev", "name", "batch_size", "speedup", "abs_latency", "compilation_latency", "compression_ratio"],
    *["eager_peak_mem", "dynamo_peak_mem", "calls_captured", "unique_graphs", "graph_breaks"],
    *["unique_graph_breaks", "autograd_captures", "autograd_compiles", "cudagraph_skips"],
]
ACCURACY_COLUMNS = [
    *["dev", "name", "batch_size", "accuracy", "calls_captured", "unique_graphs", "graph_breaks"],
    *["unique_graph_breaks", "autograd_captures", "autograd_compiles", "cudagraph_skips"],
]


def table(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def csv_files(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if name.endswith(".csv")}


# -- golden files ----------------------------------------------------------------


def texts(name: str) -> dict[str, str]:
    """Every text that a run ends in, by file name; lines without the spaces that pad a table."""
    records = RUNS[name]()
    files = render_all(summarize(records))
    found = {file: content.decode() for file, content in files.items() if not file.endswith(NOT_GOLDEN)}
    for width in (80, 200):
        lines = printed(records, width).splitlines()
        found[f"console_{width}.txt"] = "\n".join(line.rstrip() for line in lines) + "\n"
    return found


@pytest.mark.parametrize("name", RUNS)
def test_texts_are_the_golden_ones(name: str) -> None:
    folder = GOLDEN / name
    found = texts(name)
    if os.environ.get("UPDATE_GOLDEN"):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for file, text in found.items():
            (folder / file).write_bytes(text.encode())
    golden = {path.name: path.read_bytes().decode() for path in folder.iterdir()}
    assert sorted(found) == sorted(golden)
    for file, text in golden.items():
        assert found[file] == text, file


def test_the_synthetic_run_has_every_kind_of_ending() -> None:
    summary = summarize(synthetic_run())
    assert {c.verdict.value for c in summary.comparisons if c.verdict is not None} == {
        "faster",
        "slower",
        "same",
        "inconclusive",
    }
    assert {c.record.status.value for c in summary.comparisons} >= {
        "pass",
        "fail_accuracy",
        "crash",
        "timeout",
        "not_compiled",
        "OOM",
        "fail_to_run",
        "eager_two_runs_differ",
    }


# -- all reports -----------------------------------------------------------------


def test_reports_are_found_by_file_name_and_the_console_is_none_of_them() -> None:
    names = [module.__name__.rsplit(".", 1)[-1] for module in discover()]
    assert names == sorted(names)
    assert {"field_csv", "markdown", "speedup_plot"} <= set(names)
    assert not any(name.startswith("_") or name == "console" for name in names)


def test_a_report_that_fails_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(summary: object) -> Mapping[str, bytes]:
        raise OSError("no fonts")

    monkeypatch.setattr(speedup_plot, "render", fail)
    files = render_all(summarize(accuracy_run()))
    assert "report.md" in files
    assert capsys.readouterr().err == "error: report speedup_plot was not made: OSError: no fonts\n"


def test_two_reports_cannot_write_the_same_file(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("twin")
    monkeypatch.setattr(module, "render", markdown.render, raising=False)
    monkeypatch.setattr(reports, "discover", lambda: (markdown, module))
    with pytest.raises(ValueError, match=r"both write \['report.md'\]"):
        render_all(summarize(accuracy_run()))


def test_no_records_give_no_nonsense() -> None:
    files = render_all(summarize([]))
    assert "no records" in files["report.md"].decode()
    assert "no records" not in printed([], 80)  # the caller says so, with the folder's name


def test_names_of_any_length_break_nothing() -> None:
    summary = summarize([make_record(make_job("long" * 100), speedup=1.5)])
    assert any(name.endswith(".png") for name in render_all(summary))
    for width in (72, 200):
        text = printed([c.record for c in summary.comparisons], width)
        assert all(len(line) <= width for line in text.splitlines())


def test_files_hold_no_control_characters_whatever_models_are_called() -> None:
    for name, content in render_all(summarize(synthetic_run())).items():
        assert all(c.isalnum() or c in "._-" for c in name), name
        if not name.endswith(".png"):
            text = content.decode()
            assert all(c == "\n" or c.isprintable() for c in text), name


# -- the field's CSV files -------------------------------------------------------


def test_field_columns_come_first_and_in_order() -> None:
    files = field_csv.render(summarize(synthetic_run()))
    for name, content in files.items():
        expected = PERFORMANCE_COLUMNS if name.endswith("_performance.csv") else ACCURACY_COLUMNS
        header = content.decode().splitlines()[0].split(",")
        assert header[: len(expected)] == expected
        assert len(set(header)) == len(header)


def test_file_names_are_the_fields() -> None:
    job = make_job(mode=Mode.INFERENCE, device="cuda:1", dtype="bfloat16", suite="/a b/my_suite.py")
    assert sorted(field_csv.render(summarize([make_record(job)]))) == [
        "inductor_my_suite_bfloat16_inference_cuda-1_accuracy.csv",
        "inductor_my_suite_bfloat16_inference_cuda-1_performance.csv",
    ]


@pytest.mark.parametrize(
    ("protocol", "kinds"),
    [
        (Protocol(performance=False), ["accuracy"]),
        (Protocol(accuracy=False), ["performance"]),
        (Protocol(), ["accuracy", "performance"]),
    ],
)
def test_files_exist_only_for_what_was_asked(protocol: Protocol, kinds: list[str]) -> None:
    files = field_csv.render(summarize([make_record(make_job(protocol=protocol))]))
    assert sorted(name.rsplit("_", 1)[-1] for name in files) == [f"{kind}.csv" for kind in kinds]


def test_suites_of_the_same_name_do_not_share_files() -> None:
    jobs = [make_job(suite=suite) for suite in ("toys", "/a/toys.py", "/b/toys.py")]
    files = field_csv.render(summarize([make_record(job) for job in jobs]))
    assert len(files) == 6
    assert "inductor_toys_float32_training_cpu_accuracy.csv" in files


def test_field_numbers_have_the_fields_meaning_and_units() -> None:
    record = make_record(make_job(), speedup=2.0, compilation_s=5.0, memory_ratio=1.25)
    summary = summarize([record])
    (row,) = table(field_csv.render(summary)["inductor_toys_float32_training_cpu_performance.csv"])
    (comparison,) = summary.comparisons
    assert float(row["speedup"]) == pytest.approx(known(comparison.estimate).speedup_of_medians, rel=1e-5)
    assert float(row["abs_latency"]) == pytest.approx(5.0, rel=0.1)  # the candidate's ms
    assert float(row["baseline_ms"]) == pytest.approx(10.0, rel=0.1)
    assert (row["eager_peak_mem"], row["dynamo_peak_mem"], row["compression_ratio"]) == ("2", "1.6", "1.25")
    assert (row["compilation_latency"], row["calls_captured"], row["n"]) == ("5", "12", "20")
    assert float(row["ci_low"]) < float(row["speedup_paired"]) < float(row["ci_high"])


def test_a_missing_number_is_an_empty_cell() -> None:
    files = field_csv.render(summarize([make_record(make_job(), status=Status.CRASH)]))
    (row,) = table(files["inductor_toys_float32_training_cpu_performance.csv"])
    numbers = {
        name for name, text in row.items() if text and columns()[OF_PYTORCH.get(name, name)].unit != "text"
    }
    assert numbers == {"batch_size", "published_batch_size", "parameters", "passed"}
    assert (row["status"], row["passed"], row["failure"] != "") == ("crash", "false", True)


def test_every_record_has_its_row() -> None:
    records = synthetic_run()
    files = field_csv.render(summarize(records))
    for kind in ("performance", "accuracy"):
        rows = [
            row for name, content in files.items() if name.endswith(f"_{kind}.csv") for row in table(content)
        ]
        assert len(rows) == len(records)


def test_no_cell_is_a_formula() -> None:
    for name, content in csv_files(render_all(summarize(synthetic_run()))).items():
        for row in csv.reader(io.StringIO(content.decode(), newline="")):
            for cell in row:
                if cell.startswith(("=", "+", "-", "@")):
                    assert float(cell) is not None, (name, cell)
    names = [name for name in HOSTILE_NAMES if name.startswith("=")]
    assert names, "the synthetic run has no formula to escape"


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
    assert "<script>alert(1)</script>" in shown
    assert "pipe|tick`bracket[0]*star*" in shown


@given(st.text(alphabet="ab_*`[]()<>|&#;!~\\$@:/ -^1", max_size=30))
def test_any_text_is_shown_as_it_is(text: str) -> None:
    source = f"| head |\n| --- |\n| x{markdown.escape(text)}x |\n"
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(source)
    (_, cell) = [token for token in tokens if token.type == "inline"]
    assert {child.type for child in cell.children or ()} == {"text"}
    assert "".join(child.content for child in cell.children or ()) == f"x{text}x"


def test_table_rows_all_have_as_many_cells_as_the_header() -> None:
    text = markdown.render(summarize(synthetic_run()))["report.md"].decode()
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    rows: list[int] = []
    tables: list[list[int]] = []
    for token in tokens:
        if token.type == "table_open":
            rows = []
            tables.append(rows)
        elif token.type == "tr_open":
            rows.append(0)
        elif token.type in ("th_open", "td_open"):
            rows[-1] += 1
    assert len(tables) == 7  # averages, two of candidate over candidate, three sections, the environment
    assert all(len(set(rows)) == 1 for rows in tables)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    bars = [line.replace("\\|", "").count("|") for line in lines]
    assert sum(bars) == sum(sum(rows) + len(rows) + rows[0] + 1 for rows in tables)


def test_every_command_is_in_the_report() -> None:
    records = accuracy_run()
    text = markdown.render(summarize(records))["report.md"].decode()
    assert all(record.reproduce in text for record in records)


def test_a_command_cannot_close_its_code_block() -> None:
    job = make_job("```\n<script>")
    text = markdown.render(summarize([make_record(job)]))["report.md"].decode()
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    (fence,) = [token for token in tokens if token.type == "fence"]
    assert fence.markup == "````"
    assert "<script>" in fence.content
