"""The console's report: it fits, says what it left out, and prints no digit that the data does not carry."""

import io
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from runner.analysis.derive import summarize
from runner.analysis.digits import (
    memory_text,
    ms_text,
    p_text,
    significant,
    speedup_text,
    steps_text,
)
from runner.reports.console import print_report
from runner.reports.parts.sections import sections
from runner.reports.parts.table import narrow_table, section_table
from tests.factories import make_job, make_record, printed, synthetic_run


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_nothing_is_wider_than_the_console(width: int) -> None:
    for line in printed(synthetic_run(), width).splitlines():
        assert cell_len(line) <= width


@pytest.mark.slow
def test_columns_are_left_out_in_order_and_named() -> None:
    (section, *_) = sections(summarize(synthetic_run()))
    whole = section_table(section)
    assert whole.droppable[0] == "worst error\n(eager, noisy eager)"
    before: tuple[str, ...] = ()
    for width in range(200, 50, -1):
        omitted = narrow_table(section, width).omitted
        assert omitted[: len(before)] == before
        assert omitted == whole.droppable[: len(omitted)]
        before = omitted
        text = printed(synthetic_run(), width) if width in (60, 80, 120) else ""
        if text:
            names = " ".join(text.split()).split("Columns omitted for width: ")[1].split("; all columns")[0]
            assert names == ", ".join(header.replace("\n", " ") for header in omitted)
    always = {"model", "candidate", "speedup\n[95 % interval]", "verdict"}
    assert set(before) == set(whole.header) - always


def test_no_color_where_the_console_is_no_terminal() -> None:
    assert "\x1b" not in printed(synthetic_run(), 80)
    assert "\x1b[" in printed(synthetic_run(), 80, force_terminal=True, color_system="standard")


def test_an_ascii_console_gets_ascii() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    print_report(summarize(synthetic_run()), Console(file=file, width=100))
    file.flush()
    assert b"\\u7db2\\u8def" in raw.getvalue()


# -- digits ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (1.2345, 1.2, 1.26, "1.23x [1.20, 1.26]"),
        (1.2345, 1.2312, 1.2378, "1.234x [1.231, 1.238]"),
        (0.9712, 0.8401, 1.0498, "0.97x [0.84, 1.05]"),
        (1.2342, 1.2212, 1.2478, "1.234x [1.221, 1.248]"),
        (1.2345, 0.9, 1.6, "1.2x [0.9, 1.6]"),
        (0.98, 0.07, 13.1, "1.0x [0.1, 13.1]"),
        (20.4, 17.2, 23.9, "20x [17, 24]"),
        (0.0131, 0.0125, 0.0137, "0.0131x [0.0125, 0.0137]"),
        (1.0, 1.0, 1.0, "1.0000x [1.0000, 1.0000]"),
        (7.5, 0.0047, 12001.0, "8x [unknown]"),
        (1.2345, None, None, "1.2x"),
    ],
)
def test_speedups_have_the_decimals_that_the_interval_supports(
    value: float, low: float | None, high: float | None, text: str
) -> None:
    assert speedup_text(value, low, high) == text


@pytest.mark.parametrize(
    ("text_of", "texts"),
    [
        # three significant digits
        (
            ms_text,
            {0.12345: "0.123", 1.2345: "1.23", 12.345: "12.3", 123.45: "123", 1234.5: "1,230", 9.996: "10.0"},
        ),
        # of gigabytes, in the unit that needs no zeros
        (memory_text, {1.2345: "1.23 GB", 0.1: "100 MB", 0.0012: "1.20 MB", 0.000091: "91.0 kB"}),
        (
            p_text,
            {0.0: "<0.001", 0.00099: "<0.001", 0.001: "0.0010", 0.0312: "0.031", 0.5: "0.50", 1.0: "1.0"},
        ),
        (steps_text, {math.inf: "never", 1234.0: "1,200", 7.46: "7.5", 0.0: "0", 1.96e6: "2,000,000"}),
    ],
)
def test_numbers_have_the_digits_of_their_kind(
    text_of: Callable[[float], str], texts: dict[float, str]
) -> None:
    assert {value: text_of(value) for value in texts} == texts


@given(st.floats(1e-9, 1e12), st.integers(1, 6))
def test_significant_digits_round_and_never_add(value: float, digits: int) -> None:
    text = significant(value, digits)
    assert float(text.replace(",", "")) == pytest.approx(float(f"{value:.{digits - 1}e}"), rel=1e-12)
    assert len(text.replace(",", "").replace(".", "").lstrip("0").rstrip("0")) <= digits


def test_the_reasons_of_graph_breaks_have_their_lines_of_code() -> None:
    reasons = "\n".join(f"calls print (model.py:{line}: print(x))" for line in range(1, 6))
    record = make_record(make_job("branch"), metrics={"graph_break_reasons": reasons, "graph_breaks": 5})
    text = printed([record], 80)
    assert "branch, inductor: graph breaks\n    calls print (model.py:1: print(x))" in text
    assert "model.py:3" in text
    assert "model.py:4" not in text
    assert "and 2 more, all in report.md" in text
