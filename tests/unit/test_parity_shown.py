"""What reports say: how fine a check of parity was, what could not be judged, words that are data."""

import ast
import re
from dataclasses import replace
from inspect import isfunction
from pathlib import Path
from string import Formatter

import pytest

from harness.loading.toml_file import read_toml
from harness.schema import Environment, Scalar, Status
from runner.analysis import caveats
from runner.analysis.columns import COMPUTED, own_columns
from runner.analysis.derive import summarize
from runner.analysis.findings import Known, parsed, rules, value_of
from runner.analysis.texts import COARSE
from runner.analysis.verdicts.between import LEAST_ACROSS
from runner.reports.pages.panels import panel_chunks
from runner.reports.parts.rows_alone import ROWS
from runner.store.figures import read_figures
from tests.factories import comparison_of, make_job, make_record


def test_a_run_of_approximate_candidates_has_no_averages() -> None:
    assert summarize([replace(make_record(make_job(), speedup=3.0), status=Status.APPROXIMATE)]).groups == ()


def test_rows_are_shown_of_eager_once_and_of_each_candidate() -> None:
    known = {"equal": 0.99999, "ulp_median": 0.0, "ulp_99": 2.0, "ulp_largest": 1234.0}
    metrics: dict[str, Scalar] = {f"candidate_row_alone_{name}": value for name, value in known.items()}
    metrics |= {f"baseline_row_{kind}_equal": 1.0 for kind in ("alone", "company")}
    metrics |= {"baseline_row_note": None, "candidate_row_note": "not defined: no output has 8 rows"}
    records = [replace(make_record(make_job(), name), metrics=metrics) for name in ("aot_eager", "inductor")]
    (table,) = ROWS.tables(summarize([*records, make_record(make_job("without"))]))
    shown = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [row["variant"] for row in shown] == ["eager", "aot_eager", "inductor"]
    assert [row["alone"] for row in shown] == ["all", *["99.9 % (ULP 0, 2, 1,234)"] * 2]
    assert [row["in other company"] for row in shown] == ["all", "-", "-"]
    assert table.notes[1:] == tuple(f"{r.candidate}: not defined: no output has 8 rows" for r in records)


def test_figures_are_those_of_the_call_nearest_to_its_limit_from_input_to_output(tmp_path: Path) -> None:
    record = make_record(make_job(), "inductor[a=1]")
    case = tmp_path / "cases" / record.job.key
    case.mkdir(parents=True)
    lines = (
        "call,tensor,elements,size,eager,noisy,candidate,part,slope,limit,outcome",
        "1,output,64,0.5,1e-07,2e-07,1e-07,1e-07,0,0.0001,pass",
        "1,gradient.w,64,0.5,1e-07,2e-07,0.0009,0.001,0,0.001,pass",
        "4,output,64,0.5,1e-07,inf,3e-07,1e-07,0,0.0001,pass",
        "4,gradient.w,64,0.5,1e-07,2e-07,0.0005,0.001,0,0.0001,fail",
        "4,the result of addmm,,,0.0001,0.0002,,,0.0001,0.004,pass",
    )
    (case / "parity-inductor-a-1-.csv").write_text("\n".join(lines))
    ((key, tensors),) = read_figures(tmp_path, [record, make_record(make_job("none"))]).items()
    assert key == (record.job.key, record.candidate)
    shown = [(tensor.tensor, tensor.call, tensor.outcome) for tensor in tensors]
    assert shown == [("gradient.w", 4, "fail"), ("output", 4, "pass")]
    assert tensors[1].noisy is None
    summary = replace(summarize([record]), figures={key: tensors})
    (panel,) = next(panel_chunks(summary))
    assert panel["parity"]["tensors"] == ["gradient.w", "output"]
    (case / "parity-inductor-a-1-.csv").write_text("call\n1\n")
    assert read_figures(tmp_path, [record]) == {}


# -- words that are data, warm caches ----------------------------------------------------------
PLACES = (Environment(name="new", python="", asked=""),)
FULL = Known(comparison_of(make_record(replace(make_job(), environments=PLACES), "inductor@new")))
TABLES = read_toml(Path(caveats.__file__).with_suffix(".toml")).values()
CAVEATS = [row for table in TABLES for row in table.values()]
WORDS = [(rule["when"], rule["sentence"] + rule["advice"]) for rule in rules()] + [row[:2] for row in CAVEATS]


def test_conditions_and_words_name_what_there_is_with_equal_limits_and_leave_nothing_over() -> None:
    fields = {name for _, text in WORDS for _, name, _, _ in Formatter().parse(text) if name}
    nodes = [node for text in fields.union(when for when, _ in WORDS) for node in ast.walk(parsed(text))]
    for node in (node for node in nodes if isinstance(node, ast.expr)):
        value_of(node, FULL.value)
        assert not isinstance(node, ast.Attribute) or hasattr(value_of(node.value, FULL.value), node.attr)
    for rule in rules():
        limits = f"{COARSE:.0%}" if rule["when"] == "coarse" else rule["when"]
        assert set(re.findall(r"\d[\d.]*", rule["title"])) <= set(re.findall(r"\d[\d.]*", limits))
    assert any(f"processes < {LEAST_ACROSS}" in row[0] and f"={LEAST_ACROSS}." in row[2] for row in CAVEATS)
    facts = {name for name, fact in vars(Known).items() if isfunction(fact) and name[0] != "_"}
    assert facts - {"value", "holds"} <= {node.id for node in nodes if isinstance(node, ast.Name)}
    assert {c.name for c in own_columns() if c.source == COMPUTED.get(c.name)} == set(COMPUTED)


def test_a_condition_is_false_of_what_is_missing_and_an_error_names_what_is_unknown() -> None:
    assert FULL.holds("passed and not unsteady and 'pass' in status and status in ('pass', 'crash')")
    assert not FULL.holds("unsteady < 1 or unsteady != 1 or 1 > n or estimate.unsteady_kind.value == 'trend'")
    for wrong in ("pasd", "record.job.cse", "1 < n < 3", "n()"):
        with pytest.raises((AttributeError, ValueError), match=re.escape(wrong.rpartition(".")[2])):
            FULL.holds(wrong)


@pytest.mark.parametrize(
    ("hits", "saved_s", "said"),
    [
        ((2, 1), 7.65, "for 2 of 2 compilations: compiling what the caches held took about 15 s."),
        ((2, 0), None, "for 1 of 2 compilations: with cold caches compilation takes longer."),
        ((0,), None, ""),
    ],
)
def test_what_caches_saved(hits: tuple[int, ...], saved_s: float | None, said: str) -> None:
    metrics = [{"hits": count, "misses": int(not count), "saved_s": saved_s} for count in hits]
    counters = [{f"compile_cache_{name}": value for name, value in saved.items()} for saved in metrics]
    records = [make_record(make_job(f"m{n}"), metrics=saved) for n, saved in enumerate(counters)]
    told = [text for text in summarize(records).caveats if "caches" in text]
    assert told == ([f"Compile caches were warm {said}"] if said else [])
