"""Runs read from CSV files (the field's, ours) and expected files, and the comparison written out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.schema import Status
from runner.analysis.derive import summarize
from runner.errors import UsageError
from runner.reports import field_csv
from runner.reports.markdown import LIMIT
from runner.runs.compare.changes import changes_between
from runner.runs.compare.csv_file import is_result_file
from runner.runs.compare.expected import HEADER, update_expected
from runner.runs.compare.gates import FOR_EXPECTED, gates_asked, outcomes
from runner.runs.compare.load import load
from runner.runs.compare.output.as_json import render_json
from runner.runs.compare.output.console import print_changes
from runner.runs.compare.output.markdown import render_markdown
from runner.runs.compare.run import Run
from runner.runs.compare.statistics import ASSUMED_WITHIN_SD
from tests.factories import HOSTILE_NAMES, HOSTILE_SUITE, make_job, make_record, synthetic_run
from tests.unit.test_changes import write

FIELD = """\
dev,name,batch_size,speedup,abs_latency,compilation_latency,compression_ratio,graph_breaks
cuda,resnet18,16,{resnet},10.0,20.5,0.9,0
cuda,BERT_pytorch,4,1.2,5.0,30.0,1.1,{breaks}
cuda,broken,4,0.0,0.0,0.0,0.0,
"""
ACCURACY = """\
dev,name,batch_size,accuracy,graph_breaks
cuda,resnet18,4,{status},0
cuda,BERT_pytorch,4,pass,2
cuda,broken,4,fail_to_run,0
"""
NAME = "inductor_torchbench_amp_training_cuda_{}.csv"


def field_run(folder: Path, *, resnet: str = "1.5", breaks: str = "2", status: str = "pass") -> Path:
    """A folder as the field's runner leaves it."""
    folder.mkdir()
    (folder / NAME.format("performance")).write_text(FIELD.format(resnet=resnet, breaks=breaks))
    (folder / NAME.format("accuracy")).write_text(ACCURACY.format(status=status))
    (folder / "geomean.csv").write_text("Compiler,torchbench\ninductor,1.3x\n")
    return folder


def texts(first: Run, second: Run, *gates: str) -> tuple[str, str, dict[str, Any]]:
    """(terminal, Markdown, JSON)"""
    found = changes_between(first, second)
    judged = outcomes(found, gates_asked(gates))
    with Console(width=200, record=True) as console, console.capture() as printed:
        print_changes(found, judged, console)
    return printed.get(), render_markdown(found, judged), json.loads(render_json(found, judged))


def loaded(path: Path) -> Run:
    return load("--compare", path)


def test_the_fields_files_say_what_their_names_and_cells_say(tmp_path: Path) -> None:
    run = loaded(field_run(tmp_path / "a"))
    by_name = {result.name: result for result in run.results}
    assert set(by_name) == {"resnet18", "BERT_pytorch", "broken"}, "other CSV files there are no results"
    resnet = by_name["resnet18"]
    assert resnet.conditions == {
        "suite": "torchbench",
        "mode": "training",
        "device": "cuda",
        "precision": "amp",
        "compiler": "inductor",
        "batch size": "16",  # that of the times: parity is checked at another
    }
    assert resnet.status == "pass"
    assert resnet.speedup is not None
    assert math.exp(resnet.speedup.value) == pytest.approx(1.5)
    assert resnet.eager_s == pytest.approx(0.015)
    assert resnet.compiled_s == pytest.approx(0.010)
    assert (resnet.compile_s, resnet.memory_ratio, resnet.graph_breaks) == (20.5, 0.9, 0)
    broken = by_name["broken"]
    assert broken.status == "fail_to_run"
    assert (broken.speedup, broken.eager_s, broken.compile_s, broken.memory_ratio) == (None,) * 4
    assert any("without intervals: a standard deviation of 4% is assumed" in note for note in run.notes)


def test_two_of_the_fields_runs(tmp_path: Path) -> None:
    before = loaded(field_run(tmp_path / "a"))
    after = loaded(field_run(tmp_path / "b", resnet="0.9", breaks="3", status="fail_accuracy"))
    found = changes_between(before, after)
    assert [c.first.name for c in found.new_failures] == ["resnet18"]
    assert [c.first.name for c in found.breaks] == ["BERT_pytorch"]
    assert [c.first.name for c in found.timed] == ["BERT_pytorch"]
    slower = changes_between(before, loaded(field_run(tmp_path / "c", resnet="0.9")))
    (outcome,) = outcomes(slower, gates_asked(["regression:5%"]))
    assert [case.split(" (")[0] for case in outcome.cases] == ["torchbench resnet18"]


def test_a_performance_file_alone_has_no_status_but_a_zero_is_a_failure(tmp_path: Path) -> None:
    run = loaded(field_run(tmp_path / "a") / NAME.format("performance"))
    assert [(r.name, r.status, r.passed) for r in run.results] == [
        ("resnet18", None, True),
        ("BERT_pytorch", None, True),
        ("broken", "fail_to_run", False),
    ]


def test_our_own_csv_files_are_the_run_that_they_came_from(tmp_path: Path) -> None:
    records = [r for r in synthetic_run() if r.job.case.suite == "toys" and r.candidate != "eager"]
    run = write(tmp_path / "run", records)
    files = tmp_path / "files"
    files.mkdir()
    for name, content in field_csv.render(summarize(records)).items():
        (files / name).write_bytes(content)
    found = changes_between(loaded(run), loaded(files))
    assert not found.mismatches
    assert not found.only_first
    assert not found.only_second
    assert not found.new_failures
    assert not found.breaks
    assert len(found.timed) >= 8
    for change in found.timed:
        assert change.speedup is not None
        assert change.speedup.factor == pytest.approx(1, abs=1e-4)
        assert change.first.speedup is not None
        assert change.second.speedup is not None
        if change.first.speedup.df < 5:  # too few rounds for an interval, and a CSV file has no rounds
            assert change.second.speedup.se == ASSUMED_WITHIN_SD
            continue
        six_digits = pytest.approx(change.first.speedup.se, rel=0.03, abs=1e-4)
        assert change.second.speedup.se == six_digits
        assert change.second.speedup.df == change.first.speedup.df


@pytest.mark.parametrize(
    ("stem", "compiler", "suite", "precision"),
    [
        ("aot_eager_timm_models_float32_training_cpu_performance", "aot_eager", "timm_models", "float32"),
        ("inductor_my_suite_amp_bfloat16_inference_cuda_accuracy", "inductor", "my_suite", "amp_bfloat16"),
        ("odd_mine_amp_bfloat16-tf32_generate_cuda-1_accuracy", "odd", "mine", "amp_bfloat16+tf32"),
    ],
)
def test_names_of_files(tmp_path: Path, stem: str, compiler: str, suite: str, precision: str) -> None:
    path = tmp_path / f"{stem}.csv"
    path.write_text("dev,name,accuracy\ncpu,m,pass\n")
    (result,) = loaded(path).results
    told = result.conditions
    assert (told["compiler"], told["suite"], told["precision"]) == (compiler, suite, precision)
    assert told["device"] == "cpu"


def test_a_file_that_says_too_little_is_asked_for_more(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text("name,accuracy\nmodel,pass\n")
    records = [make_record(make_job(), compiler) for compiler in ("inductor", "aot_eager")]
    run = write(tmp_path / "run", records)
    with pytest.raises(UsageError, match=r"does not say the compiler of model, .* \(inductor, aot_eager\)"):
        changes_between(loaded(path), loaded(run))
    with pytest.raises(UsageError, match=r"results\.csv does not say the compiler"):
        changes_between(loaded(run), loaded(path))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.csv", "a,b\n1,2\n", "not a file of results: it needs a column 'name' and one of speedup"),
        ("x.csv", "name,speedup\n", "holds no result"),
        ("x.csv", b"name,speedup\n\xff,1\n", "cannot be read as CSV"),
        ("records.jsonl", "", "holds no result"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: str | bytes, sentence: str) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError, match=sentence):
        loaded(path)


def test_bad_paths(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no .*nowhere; give the folder of a run"):
        loaded(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"has no records\.jsonl and no CSV file of results"):
        loaded(tmp_path)


def test_odd_cells_are_no_numbers(tmp_path: Path) -> None:
    path = tmp_path / NAME.format("performance")
    path.write_text("name,speedup,abs_latency,graph_breaks\na,nan,x,1.5\nb,inf,-1,\na,2,2,2\nc,1.5,1,1\n")
    run = loaded(path)
    assert [(r.name, r.speedup is not None, r.graph_breaks) for r in run.results] == [
        ("a", False, None),
        ("b", False, None),
        ("c", True, 1),
    ]
    assert any("more than one row for a; the first counts" in note for note in run.notes)


# -- expected files ----------------------------------------------------------------


def test_an_expected_file_is_what_it_was_made_from(tmp_path: Path) -> None:
    run = write(tmp_path / "run", synthetic_run())
    path = tmp_path / "expected.csv"
    made = update_expected(path, run)
    assert len(made.added) == made.rows == len(synthetic_run())
    assert path.read_text().splitlines()[0] == ",".join(HEADER)
    assert is_result_file(path)
    found = changes_between(loaded(path), loaded(run))
    assert found.first.expected
    (outcome,) = outcomes(found, FOR_EXPECTED)
    assert outcome.cases == ()
    assert len(found.changes) + len(found.controls) == made.rows
    again = update_expected(path, run)
    assert (again.added, again.changed, again.kept) == ((), (), 0)


def test_any_difference_from_what_is_expected_fails_and_is_updated(tmp_path: Path) -> None:
    path = tmp_path / "expected.csv"
    jobs = [make_job(name, candidates=("inductor",)) for name in ("a", "b", "c", "d", "e")]
    update_expected(path, write(tmp_path / "one", [make_record(job) for job in jobs[:4]]))
    changed = [
        make_record(jobs[0], status=Status.FAIL_ACCURACY),
        make_record(jobs[1], metrics={"graph_breaks": 2}),
        make_record(jobs[3]),
        make_record(jobs[4]),
    ]
    run = write(tmp_path / "two", changed)
    (outcome,) = outcomes(changes_between(loaded(path), loaded(run)), FOR_EXPECTED)
    assert [case.split("(")[0].strip() for case in outcome.cases] == ["toys a", "toys b", "toys e"]
    assert "pass -> fail_accuracy" in outcome.cases[0]
    assert "0 -> 2 graph breaks" in outcome.cases[1]
    assert "pass, only in the second run" in outcome.cases[2]
    made = update_expected(path, run)
    assert (made.rows, len(made.added), len(made.changed), made.kept) == (5, 1, 2, 1)
    assert outcomes(changes_between(loaded(path), loaded(run)), FOR_EXPECTED)[0].cases == ()


def test_a_result_in_another_size_than_expected_is_a_difference(tmp_path: Path) -> None:
    path = tmp_path / "expected.csv"
    update_expected(path, write(tmp_path / "one", [make_record(make_job("a")), make_record(make_job("b"))]))
    run = write(tmp_path / "two", [make_record(make_job("a", batch_size=4)), make_record(make_job("b"))])
    (outcome,) = outcomes(changes_between(loaded(path), loaded(run)), FOR_EXPECTED)
    assert len(outcome.cases) == 1
    assert "measured under other conditions (batch size 8 -> 4)" in outcome.cases[0]


def test_another_file_is_never_overwritten(tmp_path: Path) -> None:
    run = write(tmp_path / "run", [make_record(make_job())])
    path = tmp_path / "other.csv"
    path.write_text("name,accuracy\nmodel,pass\n")
    with pytest.raises(UsageError, match="is another kind of file"):
        update_expected(path, run)
    path.write_text("my,own\n1,2\n")
    with pytest.raises(UsageError, match="not a file of results"):
        update_expected(path, run)
    assert path.read_text() == "my,own\n1,2\n"


def test_the_fields_expected_files_can_be_held_against_a_run(tmp_path: Path) -> None:
    path = tmp_path / "expected.csv"
    path.write_text("name,accuracy,graph_breaks\nmodel,pass,0\nother,fail_to_run,0\n")
    run = write(tmp_path / "run", [make_record(make_job()), make_record(make_job("other"))])
    found = changes_between(loaded(path), loaded(run))
    assert found.first.expected
    assert [c.first.name for c in found.fixed] == ["other"]


# -- outputs -----------------------------------------------------------------------


def test_outputs_say_the_same(tmp_path: Path) -> None:
    before = loaded(field_run(tmp_path / "a"))
    after = loaded(field_run(tmp_path / "b", breaks="3", status="fail_accuracy"))
    printed, markdown, data = texts(before, after, "parity", "graph-breaks")
    for text in (printed, markdown):
        plain = text.replace("\\", "").replace("&gt;", ">")
        assert "New failures: 1" in plain
        assert "pass -> fail_accuracy" in plain
        assert "2 -> 3 graph breaks" in plain
        assert "Drift: eager in B takes" in plain
        assert "assumed" in plain
    assert "--fail-on parity: FAILED (results that passed before and fail now: 1)" in printed
    assert [gate["failed"] for gate in data["gates"]] == [True, True]
    assert {change["name"] for change in data["changes"]} == {"resnet18", "BERT_pytorch", "broken"}


def test_markdown_fits_into_a_comment_and_nothing_in_it_is_markup(tmp_path: Path) -> None:
    names = [f"{name} {number}" for number in range(80) for name in HOSTILE_NAMES]
    runs = []
    for which, status in (("a", Status.PASS), ("b", Status.CRASH)):
        records = [
            make_record(
                make_job(name, suite=HOSTILE_SUITE, candidates=("inductor",)),
                status=status if place % 2 else Status.PASS,
            )
            for place, name in enumerate(names)
        ]
        runs.append(loaded(write(tmp_path / which, records)))
    printed, markdown, _ = texts(runs[0], runs[1], "parity")
    assert len(markdown.encode()) < LIMIT
    assert "<script" not in markdown
    assert "@someone" not in markdown
    assert "omitted, to keep this short: --format=json has all of them" in markdown
    assert "\x1b" not in printed
    assert "[red]markup[/red]" in printed


def test_a_narrow_terminal_drops_columns_and_says_so(tmp_path: Path) -> None:
    before, after = (loaded(field_run(tmp_path / name)) for name in "ab")
    found = changes_between(before, after)
    with Console(width=80) as console, console.capture() as printed:
        print_changes(found, (), console)
    lines = printed.get().splitlines()
    assert any(line.startswith("Columns omitted for width: compiled, ms A -> B") for line in lines)
    tables = [line for line in lines if line.startswith(("resnet18", "BERT_pytorch"))]
    assert tables
    assert all(len(line) <= 80 for line in tables)
