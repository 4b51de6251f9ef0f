"""``--format``: which files are made, from which words."""

from types import ModuleType

import pytest

from harness.schema import Scalar, Status
from runner import reports
from runner.analysis.derive import summarize
from runner.cli.formats import CONSOLE, formats_asked, printed
from runner.errors import UsageError
from runner.reports import formats, render_all
from tests.factories import accuracy_run, make_job, make_record


def test_every_ending_is_a_word_and_every_report_says_its_own() -> None:
    assert formats() == ("csv", "html", "hud", "json", "md", "png", "svg")
    for module in reports.discover():
        assert module.FORMATS, module.__name__


def test_words_are_taken_in_any_case_and_none_means_all() -> None:
    assert formats_asked({}) is None
    assert formats_asked({"format": ["HTML,console"]}) == frozenset({"html", "console"})
    assert printed(None)
    assert printed(frozenset({CONSOLE}))
    assert not printed(frozenset({"html"}))


def test_an_unknown_word_ends_in_a_sentence() -> None:
    with pytest.raises(
        UsageError, match="--format: there is no format called 'pdf'; choose from console, csv"
    ):
        formats_asked({"format": ["md,pdf"]})


def test_a_report_without_a_word_answers_to_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("runner.reports.badge")
    monkeypatch.setattr(module, "render", lambda summary: {"badge.svg": b""}, raising=False)
    monkeypatch.setattr(reports, "discover", lambda: (module,))
    summary = summarize(accuracy_run())
    assert set(render_all(summary, {"badge"})) == {"badge.svg"}
    assert render_all(summary, {"svg"}) == {}


# -- report.md within GitHub's limit ----------------------------------------------


def long_report(models: int, metrics: dict[str, Scalar] | None = None) -> str:
    records = [
        make_record(
            make_job(f"a_model_<b>with</b>_a|long_name_{number}"),
            speedup=0.5 if number % 2 else 1.5,
            status=Status.CRASH if number % 10 == 0 else Status.PASS,
            rounds=6,
            metrics=metrics,
        )
        for number in range(models)
    ]
    return render_all(summarize(records), {"md"})["report.md"].decode()


def test_a_long_report_fits_into_a_comment_and_says_what_is_missing() -> None:
    text = long_report(500)
    assert 60_000 < len(text.encode()) <= 65_536
    assert "rows omitted, to keep this short: report.html and summary.json have all of them.)" in text
    assert text.count("<details>") == text.count("</details>") > 1
    assert text.count("```") % 2 == 0
    outside = "".join(text.split("```")[::2])
    assert "<b>" not in outside  # what is cut is as harmless as the rest
    table = [line for line in outside.splitlines() if line.startswith("| a\\_model")]
    assert len({line.replace("\\|", "").count("|") for line in table}) <= 1
