"""Texts that explain a number, in report.md: as they are, and unable to become markup."""

from dataclasses import replace

from runner.analysis.derive import summarize
from runner.reports import markdown
from tests.factories import make_job, make_record


def test_explanations_fold_away_under_their_model_and_compiler() -> None:
    record = make_record(make_job("model"))
    metrics = {
        **record.metrics,
        "graph_break_reasons": "unsupported: <b>print</b> (model.py:5: print(x))\n2x other",
        "recompile_reasons": None,
        "candidate_kernel_changes": "mm: 5.000 -> 1.500 ms (-3.500)",
    }
    text = markdown.render(summarize([replace(record, metrics=metrics)]))["report.md"].decode()
    assert f"<summary>model, {record.candidate}: graph breaks</summary>" in text
    assert "- unsupported: &lt;b>print&lt;/b>" in text
    assert "- 2x other" in text
    assert "- mm: 5.000 -> 1.500 ms" in text
    assert "recompilations" not in text


def test_without_texts_there_is_nothing_to_fold() -> None:
    text = markdown.render(summarize([make_record(make_job("model"))]))["report.md"].decode()
    assert "graph breaks</summary>" not in text
