"""Advice for users of ``compare()``: its own words in place of flags, and no files that it does not write."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.schema import Status
from runner.analysis.comparison import Finding
from runner.analysis.derive import summarize
from tests.factories import make_job, make_record, synthetic_run
from torchduet.advice import for_python


def rewritten(text: str, folder: Path | None = None) -> str:
    finding = Finding(title="a finding", cases=(), advice=text)
    return for_python(replace(summarize(()), warnings=(finding,)), folder).warnings[0].advice


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Raise --repeat, or use --processes=auto.",
            "Raise Protocol(repeat=...), or use Protocol(processes=0).",
        ),
        ("Add --isolate or --processes=N.", "Add Protocol(isolate=True) or Protocol(processes=...)."),
        ("See --explain.", "See Extras(explain=True)."),
        (
            "With --inductor-config=fallback_random=True it is.",
            "With CompilerOptions(inductor_config=('fallback_random=True',)) it is.",
        ),
        ("Use a smaller --batch-size.", "Use a smaller batch size."),
        ("A. Read the log.", "A. The log is kept with compare(..., output_dir='new_folder')."),
        ("Use its command in report.md.", "The log is kept with compare(..., output_dir='new_folder')."),
    ],
)
def test_flags_are_arguments_and_files_are_not_named(text: str, expected: str) -> None:
    assert rewritten(text) == expected


def test_a_folder_that_is_kept_is_named(tmp_path: Path) -> None:
    assert rewritten("Read the log.", tmp_path) == f"The log is in {tmp_path}."


def test_no_finding_names_a_flag() -> None:
    failing = [
        make_record(make_job(status.value), status=status, speedup=None, metrics={})
        for status in Status
        if not status.passed
    ]
    for summary in (summarize(synthetic_run()), summarize(failing)):
        own = for_python(summary, None)
        assert len(own.warnings) == len(summary.warnings) > 1
        for text in (*(one.advice for one in own.warnings), *own.caveats):
            assert not re.search(r"--[a-z]|report\.(md|html)", text)
