"""The console's report: it fits, says what it left out, and prints no digit that the data does not carry."""

import io
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from harness.schema import Extras, Mode, Protocol, Record, Setting, Status
from runner.analysis.derive import summarize
from runner.analysis.digits import memory_text, ms_text, p_text, significant, speedup_text, steps_text
from runner.analysis.results import Result
from runner.cli.measuring import report
from runner.reports.closing import closing_lines
from runner.reports.console import print_report
from runner.reports.parts.sections import top_models
from runner.reports.views import RESULTS
from runner.store.run_folder import RunFolder
from suites import tiny_gpt
from tests.factories import control, make_job, make_record, printed, synthetic_run


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_nothing_is_wider_than_the_console(width: int) -> None:
    for line in printed(synthetic_run(), width).splitlines():
        assert cell_len(line) <= width


@pytest.mark.slow
def test_columns_are_left_out_in_order_and_named() -> None:
    whole, *_ = RESULTS.tables(summarize(synthetic_run()))
    assert whole.droppable[0] == "worst error\n(eager, noisy eager)"
    before: tuple[str, ...] = ()
    for width in range(200, 50, -1):
        omitted = whole.within(width).omitted
        assert (omitted[: len(before)], omitted) == (before, whole.droppable[: len(omitted)])
        before = omitted
    always = {"model", "candidate", "speedup\n[95 % interval]", "verdict"}
    assert (set(before), "crash" in str(whole.within(50).rows)) == (set(whole.header) - always, True)


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
        *((1.2345, 1.2, 1.26, "1.23x [1.20, 1.26]"), (1.2345, 1.2312, 1.2378, "1.234x [1.231, 1.238]")),
        *((0.9712, 0.8401, 1.0498, "0.97x [0.84, 1.05]"), (1.2342, 1.2212, 1.2478, "1.234x [1.221, 1.248]")),
        *((1.2345, 0.9, 1.6, "1.2x [0.9, 1.6]"), (0.98, 0.07, 13.1, "1.0x [0.1, 13.1]")),
        *((20.4, 17.2, 23.9, "20x [17, 24]"), (0.0131, 0.0125, 0.0137, "0.0131x [0.0125, 0.0137]")),
        *((1.0, 1.0, 1.0, "1.0000x [1.0000, 1.0000]"), (7.5, 0.0047, 12001.0, "8x [unknown]")),
        (1.2345, None, None, "1.2x"),
    ],
)
def test_the_decimals_of_a_speedup(value: float, low: float | None, high: float | None, text: str) -> None:
    assert speedup_text(value, low, high) == text


@pytest.mark.parametrize(
    ("text_of", "texts"),
    [
        # three significant digits
        (ms_text, {0.12345: "0.123", 1.2345: "1.23", 123.45: "123", 1234.5: "1,230", 9.996: "10.0"}),
        # of gigabytes, in the unit that needs no zeros
        (memory_text, {1.2345: "1.23 GB", 0.1: "100 MB", 0.0012: "1.20 MB", 0.000091: "91.0 kB"}),
        (p_text, {0.00099: "<0.001", 0.001: "0.0010", 0.0312: "0.031", 0.5: "0.50", 1.0: "1.0"}),
        (steps_text, {math.inf: "never", 1234.0: "1,200", 7.46: "7.5", 0.0: "0", 1.96e6: "2,000,000"}),
    ],
)
def test_numbers_have_digits_of_their_kind(text_of: Callable[[float], str], texts: dict[float, str]) -> None:
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
    assert "branch training, inductor: graph breaks\n    calls print (model.py:1: print(x))" in text
    assert ("model.py:3" in text, "model.py:4" in text) == (True, False)
    assert "and 2 more, all in report.md" in text


# -- what a very large run shows ---------------------------------------------------------------
def results_of(*speedups: float) -> Sequence[Result]:
    records = [
        make_record(make_job(f"model_{place}"), candidate, speedup=speedup)
        for place, speedup in enumerate(speedups)
        for candidate in ("inductor", "torchscript")
    ]
    return summarize(records).comparisons


def names(comparisons: Sequence[Result]) -> list[str]:
    return [c.record.job.case.name for c in comparisons]


def test_of_more_the_furthest_from_1_are_kept_whole_and_in_plan_order() -> None:
    kept, said = top_models(results_of(1.0, 0.4, 1.1, 2.0, 0.9), most=4, otherwise=2)
    assert names(kept) == ["model_1", "model_1", "model_3", "model_3"]
    assert said.startswith("2 of 5 models, with the speedups furthest from 1;")
    wrong = make_record(make_job("wrong"), status=Status.FAIL_ACCURACY, speedup=9.0)
    both = summarize([wrong, make_record(make_job("right"), speedup=1.2)]).comparisons
    assert names(top_models(both, most=1, otherwise=1)[0]) == ["right"]


def test_the_console_says_what_it_leaves_out() -> None:
    records = [make_record(make_job(f"model_{i}"), speedup=1 + i / 1000, rounds=6) for i in range(201)]
    text = printed(records, 100)
    assert "50 of 201 models, with the speedups furthest from 1; report.html and the CSV files have" in text
    assert sum(line.startswith("model_") for line in text.splitlines()) == 50
    assert "passed: inductor 201/201" in text


# -- the end of a run (UPDATE_GOLDEN=1 writes its golden files anew) ---------------------------
GOLDEN = Path(__file__).parent.parent / "data" / "golden" / "endings"
LAST = 25  # lines
UNCHECKED = Protocol(accuracy=False)


def one_model() -> list[Record]:
    job = make_job("transformer_loss", suite="models.py", dtype="bfloat16", candidates=("inductor",))
    return [make_record(job, speedup=1.1, jitter=0.4, compilation_s=104.0)]


def main_job() -> list[Record]:
    """13 models, three compilers: two models in which one goes wrong."""
    cases = tiny_gpt.cases(Setting(mode=Mode.TRAINING, device_type="cpu", scale="small"))[:13]
    records = []
    for place, case in enumerate(cases):
        job = replace(
            make_job(dtype="bfloat16", candidates=("aot_eager", "inductor", "torchscript")), case=case
        )
        failed = {3: Status.FAIL_ACCURACY, 7: Status.CRASH}.get(place, Status.PASS)
        records += [
            make_record(job, "aot_eager", speedup=0.9 + place / 100, compilation_s=2.0),
            make_record(job, speedup=0.8 + place / 10, jitter=0.03, status=failed, compilation_s=30.0),
            make_record(job, "torchscript", speedup=1.0, jitter=0.1, compilation_s=0.5),
        ]
    return records


def own_models() -> list[Record]:
    """18 functions of one file, each a model."""
    names = ("mlp", "cnn", "lstm", "gpt", "vit", "moe", "unet", "gan", "vae")
    jobs = [
        make_job(f"{name}_{n}", suite="models.py", candidates=("inductor",)) for name in names for n in (1, 2)
    ]
    records = [make_record(job, speedup=0.9 + place / 20, jitter=0.02) for place, job in enumerate(jobs)]
    records[4] = make_record(jobs[4], status=Status.NOT_COMPILED)
    records[5] = make_record(jobs[5], speedup=0.5, metrics={"graph_breaks": 4})
    return records


RUNS = {run.__name__: run for run in (one_model, main_job, own_models)}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_ends_with_its_answer(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    records = RUNS[name]()
    jobs = list({record.job.key: record.job for record in records}.values())
    folder = RunFolder.create(Path("logs/mine"), jobs, ["runner.py"], {})
    for record in records:
        folder.append(record)
    file = io.StringIO()
    report(folder, Console(file=file, width=80), frozenset({"html", "console"}))
    text = file.getvalue().replace(f"{tmp_path.resolve()}/", "")
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[-1] == "Report: logs/mine/report.html"
    assert len(printed(records, 100).rpartition("\n\n")[2].splitlines()) < 12  # and the path of the report
    ending = "\n".join(lines[-LAST:]) + "\n"
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(ending, encoding="utf-8")
    assert ending == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (make_record(make_job(), status=Status.CRASH), "crash (SIGSEGV: made up | for crash)"),
        (
            make_record(make_job(protocol=UNCHECKED), speedup=0.5, status=Status.PASS_DUE_TO_SKIP),
            "slower, 0.500x [0.494, 0.507], compiles in 5.00 s, parity not checked, never pays",
        ),
    ],
)
def test_the_line_of_a_result(record: Record, line: str) -> None:
    assert closing_lines(summarize([control(record.job), record])) == (
        f"model training float32, inductor: {line}",
    )


def test_of_a_stream_of_shapes_no_number_of_steps_of_one_shape_is_said() -> None:
    for shapes, said in (("", True), ("batch=4", False)):
        record = make_record(make_job(extras=Extras(shapes=shapes)), speedup=1.5)
        assert ("pays after" in closing_lines(summarize([record]))[0]) == said
