"""What reports say of a check of parity: how fine it was, what could not be judged, what is approximate."""

from __future__ import annotations

from dataclasses import replace

from harness.schema import Record, Status, Where
from runner.analysis.derive import compare, summarize
from runner.reports.parts.table import parity_cell
from tests.factories import known, make_job, make_parity, make_record


def cell(record: Record) -> str:
    return parity_cell(compare([record])[0])


def test_a_pass_has_its_resolution_beside_it() -> None:
    passed = make_record(make_job())
    assert cell(passed) == "pass"  # an older record
    fine = replace(known(passed.parity), resolution_median=0.001, resolution_largest=0.0523)
    assert cell(replace(passed, parity=fine)) == "pass, to 5.2 %"
    failed = make_record(make_job(), status=Status.FAIL_ACCURACY)
    assert cell(replace(failed, parity=fine)) == "fail_accuracy"
    assert cell(replace(failed, parity=None)) == "fail_accuracy"


def approximate() -> Record:
    parity = make_parity(Status.FAIL_ACCURACY)  # the error is half of the tensor's size
    record = make_record(make_job("quantized"), speedup=3.0)
    return replace(record, status=Status.APPROXIMATE, parity=parity)


def test_an_approximate_candidate_shows_its_error_and_enters_no_number_of_the_group() -> None:
    assert cell(approximate()) == "approximate, off by 50 %"
    summary = summarize([approximate(), make_record(make_job("exact"), speedup=1.5)])
    (group,) = summary.groups
    assert (group.total, group.passed, group.averaged) == (1, 1, 1)
    assert round(known(group.geomean_speedup), 1) == 1.5
    assert summarize([approximate()]).groups == ()


def test_what_cannot_be_judged_counts_against_the_pass_rate_and_says_what_to_do() -> None:
    record = make_record(make_job("noise"))
    why = "3 of 10 tensors are rounding noise: zeros would pass"
    record = replace(record, status=Status.CANNOT_JUDGE, parity=replace(known(record.parity), unjudged=why))
    summary = summarize([record, make_record(make_job("exact"))])
    (group,) = summary.groups
    assert (group.total, group.passed, group.averaged) == (2, 1, 1)
    (finding,) = [one for one in summary.warnings if "cannot be judged" in one.title]
    assert finding.cases[0].endswith(why)
    assert "float32" in finding.advice


def test_a_failure_says_which_check_found_it_and_what_its_errors_look_like() -> None:
    record = make_record(make_job(), status=Status.FAIL_ACCURACY)
    parity = replace(known(record.parity), found_by="step 2 in a row", lower_precision="TF32 or float16")
    (finding,) = [
        one for one in summarize([replace(record, parity=parity)]).warnings if one.title == "Parity failures"
    ]
    assert "(step 2 in a row)" in finding.cases[0]
    assert "as large as in TF32 or float16, a lower precision than asked" in finding.cases[0]


def test_a_localized_failure_names_stage_submodule_and_script() -> None:
    record = make_record(make_job("wrong"), status=Status.FAIL_ACCURACY)
    assert record.parity is not None
    found = Where(
        stage="decompositions",
        compiler="aot_eager_decomp_partition",
        module="blocks.0.act",
        module_class="GELU",
        repro="cases/wrong/repro-inductor.py",
    )
    localized = replace(record, parity=replace(record.parity, where=found))
    assert cell(localized) == "fail_accuracy, decompositions of blocks.0.act"
    (finding,) = [one for one in summarize([localized]).warnings if one.title == "Parity failures"]
    assert finding.cases[0].endswith(
        "goes wrong in decompositions (aot_eager_decomp_partition), in blocks.0.act (GELU); "
        "run cases/wrong/repro-inductor.py"
    )
    nowhere = replace(record, parity=replace(record.parity, where=Where(stage="", note="it passes now")))
    assert cell(nowhere) == "fail_accuracy"
    (finding,) = [one for one in summarize([nowhere]).warnings if one.title == "Parity failures"]
    assert finding.cases[0].endswith("not localized: it passes now")
