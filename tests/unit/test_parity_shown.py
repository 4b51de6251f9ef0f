"""What reports say: how fine a check of parity was, what could not be judged, words that are data."""

import ast
import re
from dataclasses import replace
from inspect import isfunction
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from harness.loading.toml_file import read_toml
from harness.schema import Environment, Record, Status, Where
from runner.analysis import caveats
from runner.analysis.columns import COMPUTED, columns, own_columns
from runner.analysis.derive import summarize
from runner.analysis.findings import Known, parsed, rules, value_of
from runner.analysis.texts import COARSE, coarse_note
from runner.analysis.verdicts.between import LEAST_ACROSS
from runner.reports.pages.panels import panel_chunks
from runner.store.figures import read_figures
from tests.factories import comparison_of, finding, known, make_job, make_parity, make_record


def cell(record: Record) -> str:
    """The status and, of parity in detail, what there is."""
    texts = (columns()[name].cell(comparison_of(record)) for name in ("status", "resolution_outputs"))
    return ", ".join(text for text in texts if text != "-")


def judged(record: Record, **numbers: Any) -> Record:
    """With this in its parity."""
    return replace(record, parity=replace(known(record.parity), **numbers))


OUTPUTS, BOTH = {"resolution_outputs": 0.0012}, {"resolution_outputs": 0.0012, "resolution_gradients": 0.02}


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ({}, "pass"),  # an older record
        ({"resolution_median": 0.001, "resolution_largest": 0.0523}, "pass, to 5.2 %"),
        (OUTPUTS, "pass, to 0.12 %"),
        (BOTH, "pass, to 0.12 % (gradients 2.0 %)"),
        ({**OUTPUTS, "resolution_gradients": 3.8e10}, "pass*, to 0.12 % (gradients over 1,000 %)"),
        ({**BOTH, "sensitive_tensors": ("a", "b")}, "pass, to 0.12 % (gradients 2.0 %, 2 sensitive)"),
    ],
)
def test_a_pass_says_how_fine_it_was_and_a_failure_does_not(numbers: dict[str, Any], text: str) -> None:
    assert cell(judged(make_record(make_job()), **numbers)) == text
    failed = make_record(make_job(), status=Status.FAIL_ACCURACY)
    assert cell(judged(failed, **numbers)) == cell(replace(failed, parity=None)) == "fail_accuracy"


def test_a_coarse_pass_is_marked_and_explained() -> None:
    names = {"noise_tensors": ("gradient.a",), "resolution_outputs": 0.001}
    coarse, fine = (
        judged(make_record(make_job(name)), **names, resolution_gradients=limit, fine=share)
        for name, limit, share in (("coarse", 0.23, 0.5), ("fine", 0.09, 1.0))
    )
    assert cell(coarse) == "pass*, to 0.10 % (gradients 23 %)"
    summary = summarize([coarse, fine])
    assert coarse_note(summary.comparisons).startswith("pass*: an error of 10%")
    assert coarse_note(summary.comparisons[1:]) == ""
    (case,) = next(warning for warning in summary.warnings if "coarse" in warning.title).cases
    assert case.endswith("inductor: to 0.10 % (gradients 23 %); 1 of 10 tensors were not judged")
    (group,) = summary.groups
    assert (group.judged.value, group.judged.n) == (0.75, 2)


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


def test_an_approximate_candidate_shows_its_error_and_enters_no_number_of_the_group() -> None:
    parity = make_parity(Status.FAIL_ACCURACY)  # the error is half of the tensor's size
    record = make_record(make_job("quantized"), speedup=3.0)
    approximate = replace(record, status=Status.APPROXIMATE, parity=parity)
    assert cell(approximate) == "approximate, off by 50 %"
    summary = summarize([approximate, make_record(make_job("exact"), speedup=1.5)])
    (group,) = summary.groups
    assert (group.total, group.passed, group.mean.models) == (1, 1, 1)
    assert (round(known(group.mean.value), 1), summarize([approximate]).groups) == (1.5, ())


def test_what_cannot_be_judged_counts_against_the_pass_rate_and_says_what_to_do() -> None:
    why = "3 of 10 tensors are rounding noise: zeros would pass"
    record = replace(judged(make_record(make_job("noise")), unjudged=why), status=Status.CANNOT_JUDGE)
    summary = summarize([record, make_record(make_job("exact"))])
    (group,) = summary.groups
    assert (group.total, group.passed, group.mean.models) == (2, 1, 1)
    told = finding([record], "")
    assert "cannot be judged" in told.title
    assert told.cases[0].endswith(why)
    assert "float32" in told.advice


def test_a_failure_says_which_check_found_it_and_what_its_errors_look_like() -> None:
    record = make_record(make_job(), status=Status.FAIL_ACCURACY)
    record = judged(record, found_by="step 2 in a row", lower_precision="TF32 or float16")
    (case,) = finding([record], "Parity failures").cases
    assert case.endswith(
        "grad.layer.weight: RMS error 0.5 is above the limit 0.0012 (step 2 in a row); "
        "it is the first of 2 that fail, of 10 tensors; "
        "the errors are as large as in TF32 or float16, a lower precision than asked"
    )


def test_a_localized_failure_names_stage_submodule_and_script() -> None:
    record = make_record(make_job("wrong"), status=Status.FAIL_ACCURACY)
    stage = Where(stage="decompositions", compiler="aot_eager_decomp_partition", repro="cases/a/repro.py")
    where = replace(stage, module="blocks.0.act", module_class="GELU")
    localized = judged(record, where=where)
    assert cell(localized) == "fail_accuracy, decompositions of blocks.0.act"
    (case,) = finding([localized], "Parity failures").cases
    assert case.endswith(
        "goes wrong in decompositions (aot_eager_decomp_partition), in blocks.0.act (GELU); "
        "run cases/a/repro.py"
    )
    nowhere = judged(record, where=Where(stage="", note="it passes now"))
    assert cell(nowhere) == "fail_accuracy"
    assert finding([nowhere], "Parity failures").cases[0].endswith("not localized: it passes now")


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
